// Returns the elements that a screen reader could not name: controls, images, regions and table headers without a
// text, and ids that are used twice or refer to nothing.
(() => {
  const problems = [];
  const named = (element) => (element.getAttribute("aria-label") || element.labels?.[0]?.innerText || element.innerText || element.alt ||
    (element.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.innerText || "").join("")).trim();
  for (const element of document.querySelectorAll("button, a, input, meter, th, nav, section, dialog, [role=img], [role=region]")) {
    if ((element.checkVisibility() || element.matches("dialog")) && !named(element)) problems.push(element.outerHTML.slice(0, 120));
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) problems.push(`id ${id} is used twice`);
  for (const element of document.querySelectorAll("[aria-labelledby]")) {
    if (!document.getElementById(element.getAttribute("aria-labelledby"))) problems.push(element.outerHTML.slice(0, 120));
  }
  if (document.documentElement.lang === "") problems.push("the page has no language");
  return problems;
})()
