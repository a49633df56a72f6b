// What mdBook's page lacks for readers without a mouse: the label of the sidebar's switch has no attributes of a button,
// the bar at the top is a landmark, and a wide block of code can be scrolled by keyboard.
const toggle = document.getElementById("mdbook-sidebar-toggle");
for (const name of ["aria-label", "aria-controls", "aria-expanded"]) toggle?.removeAttribute(name);
document.getElementById("mdbook-menu-bar")?.setAttribute("role", "banner");
document.querySelectorAll("pre > code").forEach((code) => { code.tabIndex = 0; });
