// Runs before the first paint, so that a chosen theme does not flash the other one.
(function () {
  try {
    const chosen = localStorage.getItem("headrace-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Without storage the page follows the system.
  }
})();
