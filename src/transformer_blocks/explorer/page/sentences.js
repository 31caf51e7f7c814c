// Sentences: what the story says, in the reader's language.
//
// What is in braces is a value; without one it is a term, which is bold.

import {make} from "./data.js";

export const reader = navigator.language?.startsWith("ja") ? "ja" : "en";

const SENTENCES = {
  en: {
    source: "source", target: "output", end: "(end)", under: "under ", over: "over ", back: "‹ Back", laboratory: "Laboratory: all layers, heads and numbers",
    lookTitle: "A small network translated this {source} sentence. What did it look at to write each {target} word?",
    ask: "Which {source} word did the network look at to write {word}? Tap it.",
    right: "✓ Yes: it looked at {looked}, {share}. ",
    wrong: "✗ Not {guess}: the network looked at {looked}, {share}. ",
    first: "This looking is called {attention}; the number is the attention {weight}.",
    far: "To write its first word, it had to look near the end of the {source} sentence. In another language the words stand in another order: attention lets the network look anywhere.",
    patternTitle: "Head {number} of layer {place} {looks}",
    pattern: "Each line is a word that looks at another, the thicker the more: this is called {attention}. Choose a word to see only its lines. The network looks several times: it has {layers} ({times}), and each has {heads} ({count}).",
    withoutTitle: "Take a word away. Does the network really need it?",
    takeAway: "Tap any {source} word to take it away.",
    wait: "The network writes the sentence again without {away} …",
    falls: "Without {away}, the chance that it writes {word} falls from {before} to {after}. ",
    stays: "Without {away}, no word becomes less likely by more than 5 %. ",
    same: "It still writes the same sentence. ", nowWrites: "It now writes: {text} ", another: "Tap another {source} word.", putBack: "Put it back",
    whyTitle: "Where does the weight of {share} come from?",
    why: "To choose {word}, the network makes a list of numbers, the {query}: what it looks for. It makes a list for each {source} word too, its {key}: what this word offers. Multiplied pair by pair and added up, lists that fit give a high score, and a high score gets most of the 100 %.",
    product: "= product", scoreName: "score", weightName: "weight", show: "Show all {size} products", hide: "Hide the products",
    sum: "All {size} products add up to {dot}. Divided by {divisor}, to keep scores small, that is the {score} {number}.",
    headsTitle: "{count} looks at once",
    heads: "So far you saw one look. The network has {count} at once, each called a {head}. It repeats this in each of its {times} {layers}, one after another. Here are the heads of layer {place}: tap one to see its lines.",
    looksMost: "looks most at {favourite}",
    learnTitle: "Watch it learn",
    learn: "The network began with random numbers, and each {update} changed them a little. Move the slider to the right: each word finds the few words that it needs. After {time} it writes: {text}",
    nothing: "(nothing)", turnTitle: "Your turn: give it a sentence", beginTitle: "Your turn: give it a beginning",
    turn: "Choose other words, or type your own. It writes: {text}",
    toLook: "Next word", toWithout: "Take a word away", toWhy: "Why that word?", toHeads: "It looks more than once", toLearn: "Watch it learn", toTurn: "Your turn",
    "previous token": "looks at the previous word", itself: "looks at the word itself", "next token": "looks at the next word", "first token": "looks at the first word",
    induction: "looks at what followed the same word before", "end of sentence": "looks at the end of the sentence", broad: "looks at all words at once", diagonal: "goes through the sentence word by word",
  },
  ja: {
    source: "元の文", target: "訳", end: "（終わり）", under: "<", over: ">", back: "‹ 戻る", laboratory: "実験室：すべての層・ヘッド・数値",
    lookTitle: "小さなネットワークがこの{source}の文を訳しました。{target}の単語を書くとき、それぞれどこを見たのでしょう？",
    ask: "{word}と書くとき、ネットワークは{source}のどの単語を見たでしょう？ タップしてください。",
    right: "✓ 正解。見たのは{looked}で、{share}です。",
    wrong: "✗ {guess}ではありません。ネットワークが見たのは{looked}で、{share}です。",
    first: "このように見ることを{アテンション（注意）}、その数をアテンションの{重み}と呼びます。",
    far: "最初の単語を書くために、{source}の文の終わり近くを見る必要がありました。言語が変われば語順も変わります。アテンションがあれば、文のどこでも見ることができます。",
    patternTitle: "第{place}層のヘッド{number}は{looks}",
    pattern: "線は、ある単語が別の単語を見ることを表し、太いほど強く見ています。これを{アテンション（注意）}と呼びます。単語を選ぶと、その線だけが見えます。このネットワークには{層}が{times}あり、各層に{ヘッド}が{count}あります。",
    withoutTitle: "単語を一つ取り去ります。ネットワークはその単語を本当に必要としているでしょうか？",
    takeAway: "{source}の単語をタップすると、取り去ることができます。",
    wait: "{away}のない文を、ネットワークがもう一度訳しています…",
    falls: "{away}がないと、{word}と書く確率は{before}から{after}に下がります。",
    stays: "{away}がなくても、確率が5 %より大きく下がる単語はありません。",
    same: "書く文は変わりません。", nowWrites: "書く文はこうなります：{text} ", another: "別の単語もタップしてみてください。", putBack: "元に戻す",
    whyTitle: "{share}という重みは、どこから来るのでしょう？",
    why: "{word}を選ぶために、ネットワークは数の列を作ります。{クエリ}、つまり何を探しているかです。{source}の各単語にも数の列、{キー}があり、何を差し出せるかを表します。二つの数を順に掛け合わせて足すと、合う列どうしのスコアは高くなり、高いスコアは100 %の多くを受け取ります。",
    product: "= 積", scoreName: "スコア", weightName: "重み", show: "{size}個の積をすべて見る", hide: "積を隠す",
    sum: "{size}個の積をすべて足すと{dot}です。大きくなりすぎないように{divisor}で割ると、{スコア}は{number}です。",
    headsTitle: "同時に{count}通りに見る",
    heads: "ここまでに見たのはその一つだけです。ネットワークは同時に{count}通りに見ます。その一つ一つが{ヘッド}です。{times}つの{層}が、これを順にくり返します。これは{place}番目の層のヘッドです。タップすると、その線が表示されます。",
    looksMost: "いちばん見ているのは{favourite}",
    learnTitle: "学習の様子",
    learn: "ネットワークの数は、はじめは乱数で、{更新}のたびに少しずつ変わりました。つまみを右へ動かすと、それぞれの単語が、必要な少数の単語を見つけていきます。{time}の後に書く文：{text}",
    nothing: "（なし）", turnTitle: "あなたの番です：文を入力してください", beginTitle: "あなたの番です：書き出しを入力してください",
    turn: "別の単語を選ぶか、自分で入力してください。ネットワークが書く文：{text}",
    toLook: "次の単語", toWithout: "単語を取り去る", toWhy: "なぜその単語？", toHeads: "見るのは一度だけではない", toLearn: "学習の様子を見る", toTurn: "あなたの番",
    "previous token": "直前の単語を見ます", itself: "その単語自身を見ます", "next token": "次の単語を見ます", "first token": "最初の単語を見ます",
    induction: "前に同じ単語の後に来たものを見ます", "end of sentence": "文の終わりを見ます", broad: "すべての単語を同時に見ます", diagonal: "文を一語ずつたどります",
  },
};

const term = textContent => make("b", {className: "term", textContent});

// A sentence as texts and elements; a value may be several of them.
export const say = (name, values = {}) => SENTENCES[reader][name].split(/[{}]/).flatMap((part, i) => i % 2 ? values[part] ?? term(part) : part);
export const sayText = (name, values) => say(name, values).map(part => part.textContent ?? part).join("");
