"use strict";

// The page shows the states that the server sends as events. It keeps which workload is selected, the
// filter and the theme, and nothing else.
const page = { state: null, selected: decodeURIComponent(location.hash.slice(1)), filter: "", skew: 0, spoken: "" };

const byId = (id) => document.getElementById(id);

// node returns an element with properties and children.
function node(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "data") Object.assign(made.dataset, value);
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// keyed makes the children of a container match items: elements are kept by key, so that focus,
// selection and scroll positions survive an update. update fills an element.
function keyed(container, items, key, create, update) {
  const known = new Map([...container.children].map((child) => [child.dataset.key, child]));
  let at = container.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = known.get(name);
    known.delete(name);
    if (!element) {
      element = create(item);
      element.dataset.key = name;
    }
    if (element !== at) container.insertBefore(element, at);
    else at = at.nextElementSibling;
    update(element, item);
  }
  for (const left of known.values()) left.remove();
}

// write sets a text only if it differs, so that a screen reader and a selection are not disturbed.
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

// now returns the present time of the server's clock, in milliseconds.
const now = () => Date.now() + page.skew;

// age returns how long ago a time was, in at most two units.
function age(at, until = now()) {
  if (!at) return "";
  const seconds = Math.max(0, Math.round((until - Date.parse(at)) / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}

const keyOf = (view) => `${view.kind}/${view.namespace}/${view.name}`;
const podsOf = (view) => view.revisions.flatMap((revision) => revision.pods.map((pod) => ({ ...pod, revision })));
const inPhase = (view) => {
  const counts = new Map(page.state.phases.map((phase) => [phase, 0]));
  for (const pod of podsOf(view)) counts.set(pod.phase, (counts.get(pod.phase) || 0) + 1);
  return [...counts].filter(([, pods]) => pods > 0);
};

// sentence returns the state of a workload in words.
function sentence(view) {
  const parts = [`${view.available} of ${count(view.desired, "desired pod")} available`];
  if (view.updated < view.desired) parts.push(`${view.updated} of the current revision`);
  const withheld = podsOf(view).filter((pod) => pod.withheld).length;
  if (withheld > 0) parts.push(`${withheld} withheld by rules`);
  return parts.join(", ");
}

function bar(container, view) {
  keyed(container, inPhase(view), ([phase]) => phase,
    ([phase]) => node("span", { data: { phase } }),
    (element, [phase, pods]) => { element.style.flexGrow = pods; element.title = `${phase}: ${pods}`; });
  container.setAttribute("aria-label", inPhase(view).map(([phase, pods]) => `${pods} ${phase}`).join(", ") || "no pods");
}

function matches(view) {
  const text = [view.kind, view.namespace, view.name, view.state, ...podsOf(view).flatMap((pod) => [pod.withheld?.rule, pod.withheld?.reason])];
  return page.filter.toLowerCase().split(/\s+/).every((word) => text.some((part) => part?.toLowerCase().includes(word)));
}

const shown = () => page.state ? page.state.workloads.filter(matches) : [];

function renderWorkloads() {
  const views = shown();
  keyed(byId("workloads"), views, keyOf,
    (view) => {
      const button = node("button", { type: "button" },
        node("span", { className: "head" }, node("span", { className: "name" }), node("span", { className: "state" })),
        node("span", { className: "what" }), node("div", { className: "bar", ariaHidden: "true" }));
      button.addEventListener("click", () => select(keyOf(view)));
      return node("li", {}, button);
    },
    (item, view) => {
      const button = item.firstElementChild;
      button.setAttribute("aria-current", String(keyOf(view) === page.selected));
      write(button.querySelector(".name"), view.name);
      write(button.querySelector(".state"), view.state);
      button.querySelector(".state").dataset.state = view.state;
      const place = page.state.namespace ? view.kind : `${view.kind} in ${view.namespace}`;
      write(button.querySelector(".what"), `${place}: ${view.available}/${view.desired} available`);
      bar(button.querySelector(".bar"), view);
    });
  const empty = byId("workloads-empty");
  empty.hidden = views.length > 0;
  write(empty, page.state.workloads.length > 0
    ? "No workload matches the filter."
    : "No workload has pods with the label kusionstack.io/control=true here.");
  keyed(byId("notes"), page.state.notes || [], (note) => note, () => node("li"), write);
}

function select(key) {
  page.selected = key;
  history.replaceState(null, "", "#" + encodeURIComponent(key));
  render();
  document.querySelector("#workloads [aria-current=true]")?.scrollIntoView({ block: "nearest" });
}

function figure(view) {
  const figures = [
    ["desired", view.desired], ["available", view.available], ["of the current revision", view.updated],
    ["unavailable", view.unavailable], ["withheld by rules", podsOf(view).filter((pod) => pod.withheld).length],
  ];
  keyed(byId("figures"), figures, ([name]) => name,
    ([name]) => node("div", {}, node("dt", {}, name), node("dd")),
    (element, [, value]) => write(element.lastElementChild, String(value)));
}

function renderPhases(view) {
  bar(byId("phase-bar"), view);
  legend(byId("phase-legend"), inPhase(view), ([phase, pods]) => `${phase} ${pods}`);
}

// legend shows the color of each phase, which is the first of an entry, with a text.
function legend(list, entries, text) {
  keyed(list, entries, ([phase]) => phase,
    ([phase]) => node("li", {}, node("span", { className: "swatch", data: { phase } }), node("span")),
    (element, entry) => write(element.lastElementChild, text(entry)));
}

// reasons returns the withheld pods of a view by rule and reason, most pods first.
function reasons(view) {
  const groups = new Map();
  for (const pod of podsOf(view).filter((one) => one.withheld)) {
    const key = `${pod.withheld.rule} ${pod.withheld.reason} ${pod.withheld.message}`;
    if (!groups.has(key)) groups.set(key, { key, ...pod.withheld, pods: [] });
    groups.get(key).pods.push(pod);
  }
  for (const pod of podsOf(view).filter((other) => other.waitsFor && !other.withheld)) {
    const key = `${pod.phase} ${pod.waitsFor}`;
    if (!groups.has(key)) groups.set(key, { key, rule: "", reason: pod.phase, message: pod.waitsFor, pods: [] });
    groups.get(key).pods.push(pod);
  }
  return [...groups.values()].sort((a, b) => b.pods.length - a.pods.length || a.key.localeCompare(b.key));
}

function commandOf(view, pod) {
  return `kubectl podops explain pod/${pod.name} -n ${view.namespace}`;
}

function renderBlocked(view) {
  const groups = reasons(view);
  keyed(byId("blocked"), groups, (group) => group.key,
    () => {
      const code = node("code");
      const copy = node("button", { type: "button" }, "Copy");
      copy.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(code.textContent);
          announce("The command is in the clipboard.");
        } catch {
          getSelection().selectAllChildren(code);
          announce("The command is selected.");
        }
      });
      return node("li", {}, node("p", { className: "pods" }),
        node("p", { className: "why" }, node("span", { className: "reason" }), node("span")),
        node("p", { className: "command" }, code, copy));
    },
    (element, group) => {
      const names = group.pods.slice(0, 3).map((pod) => pod.name).join(", ");
      const more = group.pods.length > 3 ? ` and ${group.pods.length - 3} more` : "";
      const oldest = group.pods.map((pod) => pod.since).filter(Boolean).sort()[0];
      write(element.querySelector(".pods"), `${names}${more}${oldest ? `, for ${age(oldest)}` : ""}`);
      write(element.querySelector(".reason"), group.rule ? `${group.reason} by ${group.rule}: ` : `${group.reason}: `);
      write(element.querySelector(".why").lastElementChild, group.message);
      write(element.querySelector("code"), commandOf(view, group.pods[0]));
    });
  const empty = byId("blocked-empty");
  empty.hidden = groups.length > 0;
  write(empty, view.state === "Complete" ? "No pod waits: the workload is complete." : "No rule withholds a pod.");
}

function meters(container, empty, items) {
  keyed(container, items, (item) => item.name,
    (item) => node("li", {}, node("span", { className: "name" }, item.name), node("meter", { min: 0 }), node("span", { className: "figure" })),
    (element, item) => {
      const meter = element.querySelector("meter");
      meter.max = Math.max(item.of, 1);
      Object.assign(meter, { high: meter.max - 0.5, optimum: item.best * meter.max, value: item.value });
      meter.setAttribute("aria-label", `${item.name}: ${item.text}`);
      write(element.querySelector(".figure"), item.text);
    });
  empty.hidden = items.length > 0;
}

function renderRules(view) {
  keyed(byId("rules"), view.rules, (rule) => rule.name,
    () => node("tr", {}, node("td", { className: "rule" }), node("td"), node("td"), node("td"), node("td", { className: "text" })),
    (row, rule) => {
      const verdict = rule.withholds > 0
        ? `withholds ${count(rule.withholds, "pod")}: ${rule.reason}, ${rule.message}`
        : "withholds no pod";
      [rule.name, rule.kind, rule.stage, rule.enforcement, verdict].forEach((text, cell) => write(row.cells[cell], text || ""));
    });
  byId("rules-empty").hidden = view.rules.length > 0;
  byId("rules").closest(".scroll").hidden = view.rules.length === 0;
}

function renderPods(view) {
  keyed(byId("pods"), podsOf(view), (pod) => pod.uid,
    () => node("tr", {}, node("td", { className: "pod" }), node("td", { className: "nowrap" }),
      node("td", { className: "nowrap" }, node("span", { className: "swatch" }), node("span")),
      node("td", { className: "for" }), node("td", { className: "nowrap" }), node("td", { className: "text" })),
    (row, pod) => {
      const [name, revision, phase, since, traffic, waits] = row.cells;
      write(name, pod.name);
      write(revision, (pod.revision.number ? `${pod.revision.number}, ` : "") + (pod.revision.current ? "current" : "earlier"));
      phase.firstElementChild.dataset.phase = pod.phase;
      write(phase.lastElementChild, pod.phase + (pod.operations?.length ? ` (${pod.operations.join(", ")})` : ""));
      write(since, age(pod.since));
      write(traffic, pod.backends > 0 ? `on at ${pod.trafficOn} of ${pod.backends}` : "no backend");
      write(waits, pod.withheld ? `${pod.withheld.rule}: ${pod.withheld.reason}, ${pod.withheld.message}` : pod.waitsFor || "");
    });
}

function renderTimeline(view) {
  const rows = (page.state.timelines || {})[keyOf(view)] || [];
  const end = now();
  const begin = Math.min(end - 10000, ...rows.flatMap((row) => row.spans.map((span) => Date.parse(span.from))));
  const place = (at) => 100 * (at - begin) / (end - begin);
  write(byId("timeline-hint"), rows.length > 0
    ? "Phases of each pod since this dashboard began to watch, at most the last 30 minutes. The table below has the phases of now in words."
    : "No phase has changed since this dashboard began to watch.");
  const phases = new Set(rows.flatMap((row) => row.spans.map((span) => span.phase)));
  legend(byId("timeline-legend"), page.state.phases.filter((phase) => phases.has(phase)).map((phase) => [phase]), ([phase]) => phase);
  const items = rows.length > 0 ? [...rows, { axis: true }] : [];
  keyed(byId("timeline"), items, (row) => row.axis ? "axis" : row.uid,
    (row) => node("div", { className: "row" }, node("span", { className: row.axis ? "" : "pod mono" }), node("div", { className: row.axis ? "axis" : "track" })),
    (element, row) => {
      const track = element.lastElementChild;
      if (row.axis) {
        const ticks = [0, .25, .5, .75, 1].map((part) => ({ part, at: begin + part * (end - begin) }));
        keyed(track, ticks, (tick) => String(tick.part), () => node("span"),
          (label, tick) => { label.style.left = `${100 * tick.part}%`; write(label, tick.part === 1 ? "now" : `${age(new Date(tick.at).toISOString(), end)} ago`); });
        return;
      }
      write(element.firstElementChild, row.name);
      element.firstElementChild.title = row.name;
      const spans = row.spans.filter((span) => span.phase !== "Gone");
      track.setAttribute("role", "img");
      track.setAttribute("aria-label", spans.map((span) => `${span.phase} ${age(span.from, span.to ? Date.parse(span.to) : end)}`).join(", then "));
      keyed(track, spans, (span) => span.from + span.phase, (span) => node("span", { data: { phase: span.phase } }),
        (element, span) => {
          const until = span.to ? Date.parse(span.to) : end;
          element.style.left = `${place(Date.parse(span.from))}%`;
          element.style.width = `${place(until) - place(Date.parse(span.from))}%`;
          element.title = `${span.phase}, ${age(span.from, until)}`;
        });
    });
}

// announce reads a text aloud in screen readers.
function announce(text) { write(byId("announcement"), text); }

function render() {
  if (!page.state) return;
  renderWorkloads();
  const views = shown();
  const view = page.state.workloads.find((one) => keyOf(one) === page.selected) || views[0];
  byId("loading").hidden = true;
  byId("detail").hidden = !view;
  if (!view) return;
  if (!page.selected) {
    page.selected = keyOf(view);
    renderWorkloads();
  }
  document.title = `${view.name}: ${view.state} · PodOps`;
  write(byId("kind"), `${view.kind} in ${view.namespace}`);
  write(byId("name"), view.name);
  write(byId("state"), view.state);
  byId("state").dataset.state = view.state;
  write(byId("summary"), sentence(view) + ".");
  figure(view);
  renderPhases(view);
  renderBlocked(view);
  meters(byId("budgets"), byId("budgets-empty"), view.budgets.map((budget) =>
    ({ name: budget.name, value: budget.used, of: budget.limit, best: 0, text: `${budget.used} of ${budget.limit} unavailable` })));
  meters(byId("traffic"), byId("traffic-empty"), view.traffic.map((traffic) =>
    ({ name: traffic.name, value: traffic.on, of: traffic.pods, best: 1, text: `on for ${traffic.on} of ${count(traffic.pods, "pod")}` })));
  renderRules(view);
  renderTimeline(view);
  renderPods(view);
  const spoken = `${view.name}: ${view.state}, ${sentence(view)}`;
  if (page.spoken !== spoken) {
    page.spoken = spoken;
    announce(spoken);
  }
}

function connected(state, text) {
  byId("connection").dataset.state = state;
  write(byId("connection"), text);
}

function connect() {
  const events = new EventSource("events");
  events.addEventListener("state", (event) => {
    page.state = JSON.parse(event.data);
    page.skew = Date.parse(page.state.time) - Date.now();
    write(byId("context"), page.state.context);
    write(byId("namespace"), page.state.namespace || "all");
    connected(page.state.stale ? "lost" : "live", page.state.stale || "live");
    render();
  });
  events.addEventListener("error", () => {
    connected("lost", "connection lost, trying again; the state is old");
    // The server that ends closes the stream for good: a new one may take its place.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  });
}

const themes = ["system", "light", "dark"];

function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  write(byId("theme"), `Theme: ${name}`);
  localStorage.setItem("theme", name);
}

function nextTheme() { theme(themes[(themes.indexOf(localStorage.getItem("theme")) + 1) % themes.length]); }

function step(by) {
  const views = shown();
  const at = views.findIndex((view) => keyOf(view) === page.selected);
  const next = views[Math.min(views.length - 1, Math.max(0, at + by))];
  if (next) select(keyOf(next));
}

function filter(text) {
  byId("filter").value = text;
  page.filter = text.trim();
  render();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.target === byId("filter")) {
    if (event.key === "Escape") {
      filter("");
      event.target.blur();
    }
    if (event.key === "Enter") {
      if (!shown().some((view) => keyOf(view) === page.selected)) step(1);
      byId("workload").focus();
    }
    return;
  }
  const inRegion = event.target.closest?.(".scroll, main") && event.key.startsWith("Arrow");
  const actions = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    "/": () => byId("filter").focus(), t: nextTheme, "?": () => byId("keys").showModal(),
  };
  if (inRegion || !actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

byId("filter").addEventListener("input", (event) => filter(event.target.value));
byId("theme").addEventListener("click", nextTheme);
byId("help").addEventListener("click", () => byId("keys").showModal());
document.addEventListener("keydown", onKey);
setInterval(render, 1000); // ages grow between events
theme(themes.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system");
connect();
