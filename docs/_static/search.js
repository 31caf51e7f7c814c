/* Search the sections in search_data.js. A section is found if it contains all words of the query,
   as substrings, so that Japanese and Korean need no spaces; if none does, those with the most of its
   words, but more than half. A word that no section contains is replaced by one that differs from it
   by a letter, and words such as "how" and "my" count only if there are no others. */
"use strict";

const SHOWN = 30;
const SHOWN_PER_PAGE = 3;
const EXCERPT = 160; // characters
const UNIMPORTANT = new Set(("a an and are as at be by can do does for from how i if in is it me my of on or our so that the "
  + "their there this to use using was what when where which why will with you your").split(" "));
const BETWEEN_WORDS = /[\s\u3000-\u9fff]|$/; // Japanese breaks anywhere

/* Make upper and lower case, full-width letters, and the forms of a hyphen the same character.
   A folded text is as long as the text, so that a place in one is the same place in the other. */
function fold(text) {
  const folded = text.replace(/[^\x00-\x7f]/gu, character => {
    const simple = character.normalize("NFKC").toLowerCase();
    return simple.length === character.length ? simple : character;
  });
  return folded.toLowerCase().replace(/[‐‑‒–—]/g, "-").replace(/[‘’]/g, "'");
}

const withFolded = text => ({text, folded: fold(text)});

const sections = SEARCH_SECTIONS.map(([url, page, own, text]) => ({
  url,
  page: withFolded(page),
  title: withFolded(own || page),
  body: withFolded(text),
  isPage: own === "",
  isTaught: /(^|\/)(glossary|learn)\b/.test(url),
}));

/* List where a word occurs: as a word or the beginning of one, or only inside a longer word, as
   "rope" in "property". Japanese and Korean words have no such borders. */
function find({text, folded}, word) {
  const begins = [], inside = [];
  const isLatin = /^[a-z0-9]/.test(word);
  for (let at = folded.indexOf(word); at >= 0; at = folded.indexOf(word, at + word.length)) {
    const isHump = /[A-Z]/.test(text[at]) && /[a-z]/.test(text[at - 1]); // as in LayerNorm
    const isInside = isLatin && /[a-z0-9]/.test(folded[at - 1] || "") && !isHump;
    (isInside ? inside : begins).push(at);
  }
  return {begins, inside};
}

/* Compute the rank of a section: titles count most, then the glossary and Learn, then the number of
   occurrences. It is negative if a word occurs only inside others. Count the words that are missing, too. */
function rate(section, words, phrase) {
  let rank = section.isTaught ? 100 : 0, missing = 0;
  for (const word of words) {
    const inTitle = find(section.title, word);
    const inBody = find(section.body, word);
    const begins = inTitle.begins.length + inBody.begins.length;
    if (!begins && !find(section.page, word).begins.length) {
      if (!inTitle.inside.length && !inBody.inside.length) missing += 1;
      rank -= 1000;
    }
    if (inTitle.begins.length) rank += (section.isPage ? 300 : 200) / words.length;
    rank += Math.min(begins, 20) / words.length;
  }
  const title = section.title.folded;
  if (title.includes(phrase)) rank += 50 * phrase.length / title.length + (title === phrase ? 200 : 0);
  if (words.length > 1 && section.body.folded.includes(phrase)) rank += 50;
  return {section, missing, rank: rank + 1000 * missing};
}

/* Return a word that occurs; if it occurs nowhere, the most frequent beginning of a word that differs
   from it by one letter: another letter, one more, one less, or two exchanged. */
function corrected(word) {
  const texts = sections.flatMap(({title, body}) => [title.folded, body.folded]);
  if (!/^\p{L}{4,}$/u.test(word) || texts.some(text => text.includes(word))) return word;
  const forms = [...word].flatMap((letter, i) => {
    const before = word.slice(0, i), after = word.slice(i + 1);
    return [`${before}\\p{L}?${after}`, `${before}\\p{L}${letter}${after}`, before + after.slice(0, 1) + letter + after.slice(1)];
  });
  const pattern = new RegExp(`(?<![a-z])(?:${forms.join("|")})`, "gu"), counts = {};
  for (const found of texts.flatMap(text => text.match(pattern) || [])) counts[found] = (counts[found] || 0) + 1;
  return Object.keys(counts).sort((a, b) => counts[b] - counts[a])[0] || word;
}

/* List the best sections, a few of each page, and how many are found in all. */
function search(words, phrase) {
  const all = sections.map(section => rate(section, words, phrase));
  const least = Math.min(...all.map(({missing}) => missing));
  const rated = 2 * least >= words.length ? [] : all
    .filter(({missing}) => missing === least)
    .sort((a, b) => b.rank - a.rank);
  const found = rated.some(({rank}) => rank >= 0) ? rated.filter(({rank}) => rank >= 0) : rated;
  const shownOf = {};
  const best = found.map(({section}) => section).filter(({url}) => {
    const page = url.split("#")[0];
    shownOf[page] = (shownOf[page] || 0) + 1;
    return shownOf[page] <= SHOWN_PER_PAGE;
  });
  return {best: best.slice(0, SHOWN), total: found.length};
}

/* Choose where an excerpt begins: a little before the first place that the most words are near. */
function startOf(body, words) {
  const places = words.flatMap(word => {
    const {begins, inside} = find(body, word);
    return (begins.length ? begins : inside).slice(0, 100);
  }).sort((a, b) => a - b);
  let most = 0, best = 0;
  for (const place of places) {
    const near = body.folded.slice(place, place + 0.7 * EXCERPT);
    const count = words.filter(word => near.includes(word)).length;
    if (count > most) [most, best] = [count, place];
  }
  const start = Math.floor(Math.min(best - 0.3 * EXCERPT, body.text.length - EXCERPT));
  return start <= 0 ? 0 : start + body.text.slice(start, best).search(BETWEEN_WORDS);
}

/* Append a part of a text to an element, with the words marked. */
function append(element, {text, folded}, words, start, end) {
  const quoted = words.map(word => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  let place = start;
  for (const match of folded.slice(start, end).matchAll(new RegExp(quoted.join("|"), "g"))) {
    const mark = document.createElement("mark");
    const at = start + match.index;
    mark.textContent = text.slice(at, at + match[0].length);
    element.append(text.slice(place, at), mark);
    place = at + match[0].length;
  }
  element.append(text.slice(place, end));
}

/* Build the item of a section: a link with its titles, and an excerpt of its text. */
function itemOf({url, page, title, body, isPage}, words) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  const excerpt = document.createElement("p");
  link.href = url;
  const kind = /^museum\/(?!index)/.test(url) ? "A published fault: " : ""; // its code is wrong
  const titles = withFolded(kind + (isPage ? page.text : `${page.text} › ${title.text}`));
  append(link, titles, words, 0, titles.text.length);
  const start = startOf(body, words);
  const end = start + EXCERPT + Math.min(body.text.slice(start + EXCERPT).search(BETWEEN_WORDS), 20);
  excerpt.append(start > 0 ? "…" : "");
  append(excerpt, body, words, start, end);
  excerpt.append(end < body.text.length ? " …" : "");
  item.append(link, excerpt);
  return item;
}

const input = document.getElementById("search-words");

/* Show what is found for the words in the field. */
function show() {
  const entered = fold(input.value.normalize("NFKC")).trim().split(/\s+/).filter(Boolean);
  const phrase = entered.map(corrected).join(" ");
  const all = [...new Set(phrase.split(" "))].filter(Boolean).sort((a, b) => b.length - a.length);
  const important = all.filter(word => !UNIMPORTANT.has(word.replace(/[?!.,]+$/, "")));
  const words = important.length ? important : all;
  const {best, total} = words.length ? search(words, phrase) : {best: [], total: 0};
  const items = best.map(section => itemOf(section, words));
  document.getElementById("search-results").replaceChildren(...items);
  const part = best.length < total ? `, of which ${best.length} are shown` : "";
  const instead = phrase === entered.join(" ") ? "" : ` for “${phrase}” instead`;
  const found = total === 1 ? `Found 1 section${instead}.` : `Found ${total} sections${instead}${part}.`;
  const nothing = `Nothing was found for “${input.value.trim()}”.`;
  document.getElementById("search-status").textContent = words.length ? total ? found : nothing : "";
  document.getElementById("search-nothing").hidden = !words.length || total > 0;
}

let timer;
input.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(show, 150); // one announcement for a word, not one for each letter
});
input.value = new URLSearchParams(location.search).get("q") || "";
show();
