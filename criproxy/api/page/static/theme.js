// The theme that somebody has chosen, before anything is drawn.
"use strict";
try {
  const chosen = localStorage.getItem("criproxy-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage may be forbidden: then the system decides
}
