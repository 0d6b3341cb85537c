filterRows([...document.getElementById("table").tBodies[0].rows], "solved", "problems");
openLinked();
