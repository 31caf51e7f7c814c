// Start: the first drawing, once all scripts have registered what they show.

import {$} from "./data.js";
import {fillAttentions, fillRadioGroup, laboratory, load, markTheme, render, shownContent} from "./main.js";
import {contentOf, state, views} from "./registry.js";
import {readAddress, select} from "./state.js";

fillRadioGroup($("views"), laboratory().map(name => views[name].name), i => select({view: laboratory()[i]}));
fillAttentions();
markTheme();
readAddress();
render(true);
if (contentOf(state) !== shownContent) load({isAddress: true});
if (state.view === "map" && /[#&][qk]=/.test(location.hash)) $("map").scrollIntoView({block: "nearest"});
document.documentElement.dataset.ready = "true";
