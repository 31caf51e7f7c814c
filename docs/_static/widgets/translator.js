// Chapter 0's translator in the page: a sentence, its translation token by token, and what each token attends to.
(() => {
  const _ = text => text; // marks what docs/_ext/localisation.py translates
  const root = document.getElementById("widget-translator");
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const build = async () => {
    const {data, loadModel, seq2seq, newRun, finish, generate, mostProbable, headPart} = translator; // of translator_model.js
    const {sourceWords, targetWords, choices, endId, maxLength} = data;
    const known = new RegExp([...sourceWords].sort((a, b) => b.length - a.length).join("|"), "g");
    const model = await loadModel(data);
    const crossAttention = model.decoder.layers[0].cross_attention;
    const heads = Array.from({length: crossAttention.num_heads}, (none, head) => headPart(crossAttention, head));
    const selects = [_("who"), _("what"), _("does")].map((ariaLabel, kind) =>
      make("select", {ariaLabel}, ...Object.entries(choices[kind]).map(([value, english]) => make("option", {value, textContent: `${value} ${english}`}))));
    const input = make("input", {type: "text", lang: "ja", maxLength: 40, autocomplete: "off", spellcheck: false, ariaLabel: _("Japanese sentence")});
    const without = make("input", {type: "checkbox"});
    const source = make("ol", {className: "source", lang: "ja"}), target = make("ol", {className: "target"});
    const status = make("p", {className: "status", role: "status"}), caption = make("p", {className: "caption"});
    root.append(
      make("p", {}, make("strong", {textContent: _("Chapter 0's translator runs in this page.")}), " ",
        _("It has 22,831 weights. Choose a sentence, or type one of its words. It is wrong about 魚は猫を食べます。: in its training no fish eats.")),
      make("p", {}, ...selects), input, caption, source, target, status,
      make("label", {}, without, ` ${_("without cross-attention: the decoder cannot read the source")}`));
    let timer = 0;
    const run = () => {
      clearInterval(timer);
      const words = input.value.match(known) ?? [], rest = input.value.replace(known, "").trim();
      source.replaceChildren();
      caption.textContent = "";
      target.replaceChildren();
      if (rest || !words.length) {
        status.textContent = `${_("These are all the words that it knows:")} ${sourceWords.join(" ")}`;
        return;
      }
      const off = without.checked ? heads : [], ids = words.map(word => sourceWords.indexOf(word));
      const steps = finish(seq2seq(model, ids, newRun({off}))), recording = newRun({off, isRecording: true});
      const [{tokens, isFinished}] = finish(generate(steps, model.begin_id, mostProbable, {endId, maxLength}));
      finish(finish(seq2seq(model, ids, recording)).hidden([model.begin_id, ...tokens])); // row i predicts token i
      const {weights} = recording.recorded.get(crossAttention.name), size = ids.length;
      const mean = (row, column) => heads.reduce((sum, name, head) => sum + weights[(head * (tokens.length + 1) + row) * size + column], 0) / heads.length;
      const bars = words.map(word => {
        const bar = make("i"), percent = make("small");
        source.append(make("li", {}, make("span", {className: "column"}, bar), make("b", {textContent: word}), percent));
        return {bar, percent};
      });
      const buttons = tokens.map((token, row) => make("button", {type: "button", textContent: targetWords[token], onclick: () => {
        clearInterval(timer);
        target.append(...items);
        show(row);
      }}));
      const items = buttons.map(button => make("li", {}, button));
      const show = row => {
        buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === row)));
        caption.textContent = `${_("To write this word, the decoder attends to the source:")} ${targetWords[tokens[row]]}`;
        bars.forEach(({bar, percent}, column) => {
          const weight = without.checked ? 0 : mean(row, column);
          bar.style.height = `${100 * weight}%`;
          percent.textContent = `${Math.round(100 * weight)} %`;
        });
      };
      const text = `${tokens.map(token => targetWords[token]).join(" ")}${isFinished ? "" : " …"}`;
      const end = () => {
        clearInterval(timer);
        const lastWord = buttons.findLastIndex(button => /\p{L}/u.test(button.textContent));
        if (lastWord >= 0) show(lastWord); // rather than the full stop
        status.textContent = `${text} — ${_("a click on a word shows where its attention was, the mean of both heads.")}`;
      };
      status.textContent = "";
      let row = 0;
      const next = () => {
        if (row === items.length) return end();
        target.append(items[row]);
        show(row++);
      };
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
        while (row < items.length) next();
        end();
      } else {
        next();
        timer = setInterval(next, 700);
      }
    };
    const choose = () => {
      const [being, thing, verb] = selects.map(({value}) => value);
      input.value = `${being}は${thing}を${verb}ます。`;
      run();
    };
    selects.forEach(select => select.addEventListener("change", choose));
    input.addEventListener("input", event => { if (!event.isComposing) run(); });
    input.addEventListener("compositionend", run);
    without.addEventListener("change", run);
    choose();
  };
  const script = make("script", {src: `${root.dataset.static}/translator_model.js`, onload: build});
  root.append(script);
})();
