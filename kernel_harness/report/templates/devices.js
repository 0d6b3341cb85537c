filterRows([...document.getElementById("table").tBodies[0].rows], "status", "rows");
