// The report: its data lie in the page.

data = JSON.parse(document.getElementById("data").textContent);
mount();
