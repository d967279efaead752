// Draws the charts of a report from the data in the same page.
"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);

  // Okabe and Ito's colours, which people with colour-blind eyes tell apart, and lighter ones of the
  // same hues for a dark page. Shapes help in print.
  const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#c98a00", "#56b4e9", "#767676"];
  const DARK = ["#4fa8e0", "#f08a3c", "#2bc495", "#e39ac4", "#f0c04a", "#9fdcff", "#a8b0b8"];
  const SHAPES = ["circle", "rect", "triangle", "rectRot", "star", "crossRot", "cross"];
  const darkPage = matchMedia("(prefers-color-scheme: dark)");

  // A series looks alike in all charts of its section: its name's place among the section's names.
  const places = report.sections.map((section) => {
    const names = section.charts.flatMap((chart) => chart.series.map((series) => series.name));
    return new Map([...new Set(names)].map((name, n) => [name, n]));
  });

  const axisTitle = (axis) => (axis.unit ? `${axis.label} (${axis.unit})` : axis.label);
  const format = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

  function valueScale(axis, position, colours) {
    return {
      type: "linear",
      position,
      beginAtZero: true,
      suggestedMax: axis.max ?? undefined,
      title: { display: true, text: axisTitle(axis), color: colours.ink },
      ticks: { color: colours.quiet, callback: (value) => format.format(value) },
      // One grid is enough; a second from the right axis would only cross it.
      grid: { color: colours.line, drawOnChartArea: position === "left" },
      border: { color: colours.line },
    };
  }

  // A long name would leave its chart no room; the tooltip has it whole.
  function shortName(value) {
    const name = this.getLabelForValue(value);
    const most = innerWidth < 700 ? 14 : 32;
    return name.length > most ? `${name.slice(0, most - 1)}…` : name;
  }

  function positionScale(chart, colours) {
    const numbers = chart.x.positions.numbers;
    const scale = {
      title: { display: true, text: axisTitle(chart.x), color: colours.ink },
      ticks: { color: colours.quiet, autoSkip: Boolean(numbers), maxRotation: 40, ...(numbers ? {} : { callback: shortName }) },
      grid: { color: colours.line, display: chart.form === "line" },
      border: { color: colours.line },
    };
    if (!numbers) {
      return { ...scale, type: "category" };
    }
    if (chart.form === "scatter") {
      return { ...scale, type: "linear", beginAtZero: true, grid: { color: colours.line } };
    }
    const few = numbers.length <= 16;
    return {
      ...scale,
      type: "linear",
      bounds: "data",
      // Measured points are the ticks as long as there are few of them.
      afterBuildTicks: few ? (axis) => { axis.ticks = numbers.map((value) => ({ value })); } : undefined,
    };
  }

  function dataset(chart, series, place, colours) {
    const colour = colours.series[place % colours.series.length];
    const numbers = chart.x.positions.numbers;
    const values = numbers ? series.values.map((y, n) => ({ x: numbers[n], y })) : series.values;
    const line = chart.form !== "bar";
    return {
      label: series.name,
      data: values,
      yAxisID: series.axis === "right" ? "right" : "left",
      borderColor: colour,
      backgroundColor: colour,
      borderWidth: line ? 2 : 0,
      borderDash: series.dashed ? [7, 5] : [],
      borderRadius: 2,
      maxBarThickness: 56,
      pointStyle: series.dashed ? "line" : line ? SHAPES[place % SHAPES.length] : "rect",
      pointRadius: series.dashed ? 0 : series.values.length > 40 ? 0 : 4,
      pointHoverRadius: 6,
      spanGaps: false,
      // Points on the frame are drawn whole.
      clip: 10,
    };
  }

  // The names of a scatter chart's series, next to their points.
  const names = () => ({
    id: "names",
    afterDatasetsDraw(chart) {
      const { ctx, chartArea, data } = chart;
      ctx.save();
      ctx.font = `12px ${Chart.defaults.font.family}`;
      ctx.textBaseline = "middle";
      const points = data.datasets.flatMap((dataset, n) => {
        const shown = chart.getDatasetMeta(n).data.filter((point) => !point.skip);
        const width = ctx.measureText(dataset.label).width;
        return shown.map(({ x, y }) => ({ x, y, width, label: dataset.label, colour: dataset.borderColor }));
      });
      chart.names = placeNames(points, chartArea);
      for (const { point, box, line } of chart.names) {
        ctx.fillStyle = ctx.strokeStyle = point.colour;
        if (line) {
          ctx.beginPath();
          ctx.moveTo(line.x, line.y);
          ctx.lineTo(line.toX, line.toY);
          ctx.stroke();
        }
        ctx.fillText(point.label, box.left, (box.top + box.bottom) / 2);
      }
      ctx.restore();
    },
  });

  function configuration(chart, places, colours) {
    const scales = { x: positionScale(chart, colours), left: valueScale(chart.y, "left", colours) };
    if (chart.y_right) {
      scales.right = valueScale(chart.y_right, "right", colours);
    }
    const datasets = chart.series.map((s) => dataset(chart, s, places.get(s.name), colours));
    const axisOf = (item) => (item.dataset.yAxisID === "right" ? chart.y_right : chart.y);
    const scattered = chart.form === "scatter";
    return {
      type: chart.form,
      plugins: scattered ? [names()] : [],
      data: { labels: chart.x.positions.names, datasets },
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        interaction: scattered ? { mode: "nearest", intersect: true } : { mode: "index", intersect: false },
        scales,
        plugins: {
          legend: {
            display: !scattered && (chart.series.length > 1 || Boolean(chart.y_right)),
            position: "bottom",
            labels: { color: colours.ink, usePointStyle: true, boxHeight: 7, padding: 14 },
          },
          tooltip: {
            usePointStyle: true,
            callbacks: {
              title: (items) => (items.length ? `${chart.x.label}: ${items[0].label} ${chart.x.unit}`.trimEnd() : ""),
              label: (item) =>
                `${item.dataset.label}: ${format.format(item.parsed.y)} ${axisOf(item).unit}`.trimEnd(),
            },
          },
        },
      },
    };
  }

  // A map is a table of the page itself.
  const charts = report.sections.flatMap((section, n) =>
    section.charts.filter((chart) => chart.form !== "map").map((chart) => ({ chart, places: places[n] })));
  let drawn = [];
  function draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const colours = { ink: colour("--ink"), quiet: colour("--quiet"), line: colour("--line"), series: darkPage.matches ? DARK : LIGHT };
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Chart.defaults.font.size = 13;
    drawn.forEach((chart) => chart.destroy());
    drawn = charts.map(({ chart, places }, n) =>
      new Chart(document.getElementById(`chart-${n}`), configuration(chart, places, colours)));
    // For tests: how many charts of the page show data.
    const shown = drawn.filter((chart) => chart.chartArea?.height > 0 && chart.getVisibleDatasetCount() > 0);
    document.documentElement.dataset.drawn = shown.length;
    // And where the names are, in numbers only: for each scatter chart its frame, then each name with its point.
    const edges = ({ left, top, right, bottom }) => [left, top, right, bottom];
    const told = ({ box, point, line }) => [...edges(box), point.x, point.y, line ? 1 : 0];
    const scattered = drawn.filter((chart) => chart.names);
    document.documentElement.dataset.names =
      JSON.stringify(scattered.map((chart) => [edges(chart.chartArea), ...chart.names.map(told)]));
  }
  draw();
  darkPage.addEventListener("change", draw);
  addEventListener("beforeprint", () => drawn.forEach((chart) => chart.resize()));
})();
