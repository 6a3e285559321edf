// The page of the translation server: sentences in, translations, scores and alignments out, over the REST protocol
// of TensorFlow Serving. Whatever the server sends is shown by textContent, never as HTML.

// Long texts go in parts, so that the first translations are there early and no request grows without bound.
const SENTENCES_PER_REQUEST = 16;
// Weaker links would be invisible and only cost time; the table has them.
const WEAKEST_LINK = 0.02;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);
const form = byId("form");
const text = byId("text");
const results = byId("results");
const sentenceList = byId("sentences");

// Belongs to the newest submission; whatever an older one still waits for is given up.
let submission = new AbortController();

// --- The server --------------------------------------------------------------------------------------------------

/** The JSON of an answer. Raises an Error whose message can be shown; an AbortError passes. */
async function fetchJson(path, options) {
  let response, body;
  try {
    response = await fetch(path, options);
    body = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  let json;
  try {
    json = JSON.parse(body);
  } catch {
    json = undefined;
  }
  if (!response.ok) throw new Error(`The server says: ${json?.error ?? response.statusText} (HTTP ${response.status})`);
  if (json === undefined) throw new Error("The server's answer cannot be read: it is not JSON.");
  return json;
}

/** What is served right now: {name, version, signatures, path, search, limits}. */
async function readModel(signal) {
  const { models } = await fetchJson("v1/models", { signal });
  if (!models.length) throw new Error("The server has no model ready.");
  const { name, version, signatures } = models[0];
  const path = `v1/models/${encodeURIComponent(name)}`;
  // An export from elsewhere has no translator.json; what it would say is then not shown.
  const { search, limits } = await fetchJson(`${path}/translator`, { signal }).catch((error) => {
    if (signal.aborted) throw error;
    return {};
  });
  return { name, version, signatures, path, search, limits };
}

/** The outputs of a signature as an object of columns, one entry for each sentence. */
async function predict(model, signatureName, sentences, signal) {
  const { outputs } = await fetchJson(`${model.path}:predict`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ signature_name: signatureName, inputs: { text: sentences } }),
    signal,
  });
  return Array.isArray(outputs) ? { translation: outputs } : outputs;
}

/** The translations of some sentences: [{source, truncated, hypotheses: [{text, score, logProbability, finished}]}]. */
async function translateSentences(model, sentences, signal) {
  const several = model.signatures.includes("n_best");
  const columns = await predict(model, several ? "n_best" : "serving_default", sentences, signal);
  return sentences.map((source, row) => {
    const hypothesis = (at, translations) => ({
      text: at(translations),
      score: at(columns.scores ?? columns.score),
      logProbability: at(columns.log_probabilities ?? columns.log_probability),
      finished: at(columns.finished) ?? true,
    });
    const hypotheses = several
      ? Array.from({ length: columns.num_translations[row] }, (_, place) =>
          hypothesis((column) => column?.[row][place], columns.translations),
        )
      : [hypothesis((column) => column?.[row], columns.translation)];
    return { source, truncated: columns.truncated?.[row] ?? false, hypotheses };
  });
}

// --- The form ----------------------------------------------------------------------------------------------------

async function submit() {
  submission.abort();
  submission = new AbortController();
  const { signal } = submission;
  const sentences = text.value.split("\n").map((line) => line.trim()).filter(Boolean);
  showError("");
  if (!sentences.length) {
    showError("There is nothing to translate yet. Type a sentence first.");
    text.setAttribute("aria-invalid", "true");
    setBusy(false);
    text.focus();
    return;
  }
  text.removeAttribute("aria-invalid");
  setBusy(true);
  announce("Translating");
  const started = performance.now();
  const done = [];
  try {
    const model = await readModel(signal);
    showModel(model);
    while (done.length < sentences.length) {
      const part = sentences.slice(done.length, done.length + SENTENCES_PER_REQUEST);
      const rows = await translateSentences(model, part, signal);
      if (!done.length) sentenceList.replaceChildren();
      for (const row of rows) {
        done.push(row);
        sentenceList.append(sentenceItem(row, done.length, sentences.length, model, signal));
      }
      showSummary(done, sentences.length, performance.now() - started);
    }
  } catch (error) {
    if (signal.aborted) return;
    if (!done.length) results.hidden = true;
    announce("");
    showError(error.message);
  }
  setBusy(false);
}

function setBusy(busy) {
  for (const part of [form, results]) part.setAttribute("aria-busy", String(busy));
}

function showError(message) {
  byId("error").textContent = message;
}

function announce(message) {
  byId("announcement").textContent = message;
}

function showModel({ name, path, version, search }) {
  byId("model-name").textContent = name;
  byId("model-version").textContent = version;
  byId("model-search").textContent = describeSearch(search);
  byId("model-search").parentElement.hidden = !search;
  byId("model").hidden = false;
  document.title = `${name} – Translator`;
  const links = { status: path, metadata: `${path}/metadata`, translator: `${path}/translator` };
  for (const [id, href] of Object.entries(links)) {
    byId(`link-${id}`).href = href;
    byId(`link-${id}`).hidden = false;
  }
  byId("link-translator").hidden = !search;
}

function describeSearch(search) {
  return search ? `${search.kind} search${search.beam_size > 1 ? `, ${search.beam_size} beams` : ""}` : "";
}

function showSummary(done, total, milliseconds) {
  const count = `${total} ${total === 1 ? "sentence" : "sentences"}`;
  const time = `${(milliseconds / 1000).toFixed(2)} s`;
  const complete = done.length === total;
  results.hidden = false;
  byId("summary").textContent = complete ? `${count} in ${time}` : `${done.length} of ${count} so far`;
  byId("copy-all").hidden = total === 1 || !complete || !navigator.clipboard;
  byId("copy-all").onclick = () =>
    copy(byId("copy-all"), done.map(({ hypotheses }) => hypotheses[0]?.text ?? "").join("\n"), sentenceList);
  // A long text would be read out for minutes: it is only counted.
  const spoken = total <= 3 ? done.map(({ hypotheses }) => hypotheses[0]?.text).join(" ") : "";
  if (complete) announce(`${count} translated. ${spoken}`);
}

async function copy(label, copied, shown) {
  const before = label.dataset.label ?? label.textContent;
  label.dataset.label = before;
  try {
    await navigator.clipboard.writeText(copied);
    label.textContent = "Copied";
    announce("Copied");
  } catch {
    // No clipboard outside a secure context, or it was refused: select, so that the usual key copies.
    getSelection().selectAllChildren(shown);
    label.textContent = "Selected";
    announce("Selected: copy it with your usual keys");
  }
  setTimeout(() => (label.textContent = before), 2000);
}

// --- A sentence --------------------------------------------------------------------------------------------------

function sentenceItem(row, number, total, model, signal) {
  const item = byId("sentence-template").content.firstElementChild.cloneNode(true);
  const find = (selector) => item.querySelector(selector);
  const best = row.hypotheses[0];
  const translation = find(".translation");
  find(".number").textContent = `Sentence ${number}`;
  find(".number").classList.toggle("visually-hidden", total === 1);
  find(".source").textContent = row.source;
  translation.textContent = best?.text || "No words";
  translation.classList.toggle("is-empty", !best?.text);
  find(".copy-which").textContent = ` translation ${number}`;
  find(".copy").hidden = !best?.text;
  find(".copy").addEventListener("click", () => copy(find(".copy-label"), best.text, translation));
  if (best) fillScores(find(".scores"), best);

  const flags = [];
  if (row.truncated) {
    const limit = model.limits?.max_source_tokens;
    const tokens = limit ? ` (${limit} tokens)` : "";
    flags.push(`The sentence is longer than this model reads${tokens}. Its end was left out.`);
  }
  if (best && !best.finished) flags.push("The translation reached the length limit and may lack its end.");
  fillFlags(find(".flags"), flags);

  const several = model.signatures.includes("n_best");
  const aligned = model.signatures.includes("alignments");
  find(".hypotheses-part").hidden = !several;
  find(".alignment-part").hidden = !aligned;
  find(".more").hidden = !several && !aligned;
  const parts = [aligned && "word alignment", several && "other translations"].filter(Boolean).join(" and ");
  find(".more > summary").textContent = parts.charAt(0).toUpperCase() + parts.slice(1);
  if (several) find(".hypotheses").append(...row.hypotheses.map(hypothesisItem));
  // Alignments are asked for when they are looked at: a long text does not wait for them.
  find(".more").addEventListener("toggle", ({ target }) => {
    if (target.open && aligned && !target.dataset.asked) {
      target.dataset.asked = "true";
      showAlignment(find(".alignment-part"), row.source, model, signal);
    }
  });
  find(".more").open = number === 1;
  return item;
}

function hypothesisItem(hypothesis) {
  const item = document.createElement("li");
  const words = child(item, "p", hypothesis.text || "No words");
  Object.assign(words, { dir: "auto", lang: "", translate: false });
  fillScores(child(item, "dl"), hypothesis);
  if (!hypothesis.finished) fillFlags(child(item, "ul"), ["Reached the length limit."]);
  return item;
}

function fillScores(list, { score, logProbability }) {
  list.className = "scores";
  for (const [name, value] of Object.entries({ Score: score, "Log-probability": logProbability })) {
    if (value === undefined) continue;
    const pair = child(list, "div");
    child(pair, "dt", name);
    child(pair, "dd", value.toFixed(2).replace("-", "−"));
  }
}

function fillFlags(list, flags) {
  list.className = "flags";
  list.hidden = !flags.length;
  for (const flag of flags) child(list, "li", flag);
}

function child(parent, name, content = "") {
  const made = document.createElement(name);
  made.textContent = content;
  parent.append(made);
  return made;
}

// --- The alignment -----------------------------------------------------------------------------------------------

async function showAlignment(part, source, model, signal) {
  const note = part.querySelector(".alignment-note");
  note.textContent = "Aligning …";
  let columns;
  try {
    columns = await predict(model, "alignments", [source], signal);
  } catch (error) {
    if (!signal.aborted) note.textContent = error.message;
    return;
  }
  const unpadded = (words) => words.slice(0, words.findLastIndex(Boolean) + 1);
  const sourceWords = unpadded(columns.source_words[0]);
  const targetWords = unpadded(columns.target_words[0]);
  if (!sourceWords.length || !targetWords.length) {
    note.textContent = "There are no words to align.";
    return;
  }
  note.textContent = "";
  note.hidden = true;
  const best = columns.alignment[0];
  const weights = targetWords.map((_, target) => columns.attention[0][target].slice(0, sourceWords.length));
  part.querySelector(".alignment-body").hidden = false;
  drawAlignment(part.querySelector("figure"), sourceWords, targetWords, weights, best);
  fillMatrix(part.querySelector("table"), sourceWords, targetWords, weights, best);
}

const percent = (weight) => `${Math.round(100 * weight)}%`;

function fillMatrix(table, sourceWords, targetWords, weights, best) {
  const heading = (row, word, scope) => Object.assign(child(row, "th", word), { scope, dir: "auto", lang: "" });
  const head = child(table.tHead, "tr");
  child(head, "td");
  for (const word of sourceWords) heading(head, word, "col");
  targetWords.forEach((word, target) => {
    const row = child(table.tBodies[0], "tr");
    heading(row, word, "row");
    weights[target].forEach((weight, source) => {
      const cell = child(row, "td", Math.round(100 * weight));
      cell.style.setProperty("--weight", weight);
      cell.classList.toggle("is-best", source === best[target]);
    });
  });
}

function drawAlignment(figure, sourceWords, targetWords, weights, best) {
  const drawing = figure.querySelector(".drawing");
  const svg = figure.querySelector(".links");
  const reading = figure.querySelector(".reading");
  const hint = "Point at a word, or go to it with Tab and the arrow keys, to see what it is linked to.";
  const sides = [
    { list: figure.querySelector(".source-words"), words: sourceWords, verb: "is read for" },
    { list: figure.querySelector(".target-words"), words: targetWords, verb: "looks at" },
  ];

  const links = [];
  weights.forEach((row, target) =>
    row.forEach((weight, source) => {
      if (weight < WEAKEST_LINK) return;
      const path = svg.appendChild(document.createElementNS(SVG, "path"));
      path.setAttribute("stroke-opacity", Math.min(1, weight).toFixed(3));
      path.classList.toggle("is-best", source === best[target]);
      links.push({ path, ends: [source, target] });
    }),
  );

  const highlight = (side, index) => {
    const active = side !== null;
    drawing.classList.toggle("has-active", active);
    for (const { path, ends } of links) path.classList.toggle("is-on", active && ends[side] === index);
    sides.forEach(({ items }, other) =>
      items.forEach((item, place) => {
        const weight = other === 1 ? weights[place][index] : weights[index]?.[place];
        item.style.setProperty("--weight", active && other !== side ? weight : 0);
        item.setAttribute("aria-selected", String(active && other === side && place === index));
      }),
    );
    if (!active) {
      reading.textContent = hint;
      return;
    }
    const partners = sides[1 - side].words
      .map((word, place) => ({ word, weight: side === 1 ? weights[index][place] : weights[place][index] }))
      .filter(({ weight }) => weight >= WEAKEST_LINK)
      .sort((one, other) => other.weight - one.weight)
      .slice(0, 5);
    reading.replaceChildren();
    child(reading, "bdi", sides[side].words[index]);
    reading.append(partners.length ? ` ${sides[side].verb} ` : " has no strong link.");
    partners.forEach(({ word, weight }, place) => {
      child(reading, "bdi", word);
      reading.append(` ${percent(weight)}${place + 1 < partners.length ? ", " : ""}`);
    });
  };

  sides.forEach((side, which) => {
    side.items = side.words.map((word) => {
      const item = child(side.list, "li", word);
      item.className = "word";
      item.setAttribute("role", "option");
      item.tabIndex = -1;
      return item;
    });
    side.items[0].tabIndex = 0;
    side.items.forEach((item, index) => {
      item.addEventListener("pointerenter", () => highlight(which, index));
      item.addEventListener("pointerleave", () => highlight(null, null));
      item.addEventListener("click", () => item.focus());
      item.addEventListener("focus", () => {
        for (const each of side.items) each.tabIndex = each === item ? 0 : -1;
        highlight(which, index);
      });
      item.addEventListener("blur", () => highlight(null, null));
      item.addEventListener("keydown", (event) => {
        const next = nextIndex(event.key, index, side);
        if (next === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        side.items[next].focus();
      });
    });
  });
  highlight(null, null);
  // Also called once at the start, and when a closed part of the page opens.
  let width = -1;
  new ResizeObserver(() => {
    if (drawing.clientWidth === width) return;
    width = drawing.clientWidth;
    if (width) placeLinks(drawing, svg, sides, links);
  }).observe(drawing);
}

/** The word that a key leads to, or undefined. Left and right follow the eye, also in text from right to left. */
function nextIndex(key, index, { list, items }) {
  const forward = getComputedStyle(list).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
  const last = items.length - 1;
  if (key === "Home") return 0;
  if (key === "End") return last;
  if (key === forward || key === "ArrowDown") return Math.min(index + 1, last);
  if (key.startsWith("Arrow")) return Math.max(index - 1, 0);
  return undefined;
}

/** Lay the words out in two rows, or in two columns where a row does not fit, and draw the links between them. */
function placeLinks(drawing, svg, sides, links) {
  drawing.dataset.layout = "across";
  const across = sides.every(({ list }) => list.scrollWidth <= list.clientWidth);
  drawing.dataset.layout = across ? "across" : "down";
  for (const { list } of sides) list.setAttribute("aria-orientation", across ? "horizontal" : "vertical");
  const origin = svg.getBoundingClientRect();
  const boxes = sides.map(({ items }) => items.map((item) => item.getBoundingClientRect()));
  for (const { path, ends } of links) {
    const [source, target] = ends.map((index, side) => boxes[side][index]);
    if (across) {
      const [x1, y1] = [source.left + source.width / 2 - origin.left, source.bottom - origin.top];
      const [x2, y2] = [target.left + target.width / 2 - origin.left, target.top - origin.top];
      const middle = (y1 + y2) / 2;
      path.setAttribute("d", `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`);
    } else {
      const [x1, y1] = [source.right - origin.left, source.top + source.height / 2 - origin.top];
      const [x2, y2] = [target.left - origin.left, target.top + target.height / 2 - origin.top];
      const middle = (x1 + x2) / 2;
      path.setAttribute("d", `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`);
    }
  }
}

// --- Start -------------------------------------------------------------------------------------------------------

form.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) {
    event.preventDefault();
    submit();
  }
});
text.addEventListener("input", () => {
  text.removeAttribute("aria-invalid");
  showError("");
});
readModel(submission.signal).then(showModel, (error) => {
  if (error.name !== "AbortError") showError(error.message);
});
