// A button on every block of code that copies it; nothing is loaded from elsewhere.
for (const block of document.querySelectorAll("div.highlight")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy";
  button.setAttribute("aria-label", "Copy this code");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.querySelector("pre").innerText.trimEnd() + "\n");
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(block.querySelector("pre"));
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  block.append(button);
}

// What scrolls sideways can be reached by keyboard.
for (const block of document.querySelectorAll("pre, .table-wrapper")) {
  if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
}
