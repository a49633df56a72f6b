// What mdBook's page lacks for readers without a mouse: the label of the sidebar's switch has no attributes of a button,
// the bar at the top is a landmark, a wide block of code or table can be scrolled by keyboard, a heading that is a
// link has a named anchor, and a hidden sidebar has no focus. On a phone, no line ends inside an option. In a block,
// because the scripts of mdBook have global names.
{
  const toggle = document.getElementById("mdbook-sidebar-toggle");
  for (const name of ["aria-label", "aria-controls", "aria-expanded"]) toggle?.removeAttribute(name);
  document.getElementById("mdbook-menu-bar")?.setAttribute("role", "banner");
  document.querySelectorAll("pre > code").forEach((code) => { code.tabIndex = 0; });
  document.querySelectorAll("a.header:empty").forEach((anchor) => anchor.setAttribute("aria-label", `Link to ${anchor.parentElement.textContent}`));

  document.querySelectorAll(":not(pre) > code").forEach((code) => {
    code.innerHTML = code.innerHTML.replace(/(^|[\s(\[|])(--?[a-z][\w-]*)/g, '$1<span class="option">$2</span>');
  });

  const scrollTables = () => document.querySelectorAll(".table-wrapper").forEach((table) => {
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
    else table.removeAttribute("tabindex");
  });
  scrollTables();
  addEventListener("load", scrollTables);
  addEventListener("resize", scrollTables);

  const sidebar = document.getElementById("mdbook-sidebar");
  const follow = () => { sidebar.inert = sidebar.getAttribute("aria-hidden") === "true"; };
  if (sidebar) {
    new MutationObserver(follow).observe(sidebar, { attributes: true, attributeFilter: ["aria-hidden"] });
    follow();
  }
}
