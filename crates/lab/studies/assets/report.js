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

  function valueScale(axis, position, colours, cut) {
    return {
      type: "linear",
      position,
      beginAtZero: true,
      suggestedMax: axis.max ?? undefined,
      max: cut,
      title: { display: true, text: axisTitle(axis), color: colours.ink },
      ticks: { color: colours.quiet, callback: (value) => format.format(value) },
      // One grid is enough; a second from the right axis would only cross it.
      grid: { color: colours.line, drawOnChartArea: position === "left" },
      border: { color: colours.line },
    };
  }

  // A long name would leave its chart no room: with few bars it has lines of whole words, else its beginning. The
  // tooltip has it whole.
  function shortName(value) {
    const name = this.getLabelForValue(value);
    // The vertical axis takes its part; lines that do not fit side by side would be turned, and cover each other.
    const room = Math.floor((this.chart.width - 70) / Math.max(this.getLabels().length, 1) / 7);
    if (room < 11) {
      const most = innerWidth < 700 ? 24 : 32;
      return name.length > most ? `${name.slice(0, most - 1)}…` : name;
    }
    const lines = [];
    for (const word of name.split(" ")) {
      const last = lines.at(-1);
      if (last !== undefined && last.length + 1 + word.length <= room) {
        lines[lines.length - 1] = `${last} ${word}`;
      } else {
        lines.push(word.length > room ? `${word.slice(0, room - 1)}…` : word);
      }
    }
    return lines.length > 4 ? [...lines.slice(0, 4), "…"] : lines;
  }

  function positionScale(chart, colours) {
    const numbers = chart.x.positions.numbers;
    const scale = {
      title: { display: true, text: axisTitle(chart.x), color: colours.ink },
      ticks: { color: colours.quiet, autoSkip: Boolean(numbers), maxRotation: innerWidth < 700 ? 60 : 40, ...(numbers ? {} : { callback: shortName }) },
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
    // Most of the numbers are near the beginning: they grow by factors.
    const grows = numbers[0] > 0 && numbers[numbers.length >> 1] * 3 <= numbers.at(-1);
    return {
      ...scale,
      type: grows ? "logarithmic" : "linear",
      // The library would leave out most names of a logarithmic axis.
      // With many points the ticks are round numbers: the first and the last point would stand in their way.
      ticks: { ...scale.ticks, includeBounds: few, callback: (value) => format.format(value) },
      ...(few || grows ? { bounds: "data" } : { min: numbers[0], max: numbers.at(-1) }),
      // Measured points are the ticks as long as there are few of them.
      afterBuildTicks: few ? (axis) => { axis.ticks = numbers.map((value) => ({ value })); } : undefined,
    };
  }

  // A colour of the style, lighter or darker for the second and third series of one family.
  const mixed = (colour, page, n) => {
    const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const share = Math.min(n * 0.3, 0.6);
    const to = parts(page);
    return `rgb(${parts(colour).map((part, i) => Math.round(part + (to[i] - part) * share)).join(", ")})`;
  };

  // The colours of a series: one, or one for each place. The page says which families there are.
  function colourOf(chart, canvas, series, places, colours) {
    const { places: byPlace, series: bySeries } = canvas.dataset;
    if (byPlace) {
      return byPlace.split(" ").map(colours.family);
    }
    const named = chart.series.findIndex(({ name }) => name === (series.like ?? series.name));
    if (bySeries) {
      const families = bySeries.split(" ");
      const before = families.slice(0, named).filter((family, n) =>
        family === families[named] && !chart.series[n].like);
      // Names stand next to points, and must be read.
      return mixed(colours.family(families[named]), colours.page, chart.form === "scatter" ? 0 : before.length);
    }
    return colours.series[places.get(series.like ?? series.name) % colours.series.length];
  }

  function dataset(chart, canvas, series, places, colours) {
    const place = places.get(series.like ?? series.name);
    const colour = colourOf(chart, canvas, series, places, colours);
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
      pointRadius: series.dashed ? 0 : series.like ? 7 : series.values.length > 40 ? 0 : 4,
      pointHoverRadius: series.like ? 9 : 6,
      spanGaps: series.is_joined,
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

  // The end of a bar that goes on, and its value.
  const cutBars = (cut, colours) => ({
    id: "cut",
    afterDatasetsDraw(chart) {
      const { ctx, chartArea, data, scales } = chart;
      ctx.save();
      ctx.font = `12px ${Chart.defaults.font.family}`;
      ctx.textAlign = "center";
      chart.cut = [];
      data.datasets.forEach((dataset, n) => {
        chart.getDatasetMeta(n).data.forEach((bar, place) => {
          const value = dataset.data[place];
          if (dataset.yAxisID !== "left" || !(value > cut)) {
            return;
          }
          // Two slanted lines in the page's colour break the bar.
          const top = scales.left.getPixelForValue(cut);
          const half = bar.width / 2 + 3;
          ctx.strokeStyle = colours.page;
          ctx.lineWidth = 3;
          for (const y of [top + 22, top + 28]) {
            ctx.beginPath();
            ctx.moveTo(bar.x - half, y + 4);
            ctx.lineTo(bar.x + half, y - 4);
            ctx.stroke();
          }
          const text = format.format(value);
          const width = ctx.measureText(text).width / 2;
          const x = Math.min(Math.max(bar.x, chartArea.left + width), chartArea.right - width);
          ctx.fillStyle = colours.page;
          ctx.fillRect(x - width - 3, top + 1, 2 * width + 6, 16);
          ctx.fillStyle = colours.ink;
          ctx.fillText(text, x, top + 13);
          chart.cut.push(value);
        });
      });
      ctx.restore();
    },
  });

  function configuration(chart, canvas, places, colours) {
    const cut = canvas.dataset.cut ? Number(canvas.dataset.cut) : undefined;
    const scales = { x: positionScale(chart, colours), left: valueScale(chart.y, "left", colours, cut) };
    if (chart.y_right) {
      scales.right = valueScale(chart.y_right, "right", colours);
    }
    const datasets = chart.series.map((s) => dataset(chart, canvas, s, places, colours));
    const axisOf = (item) => (item.dataset.yAxisID === "right" ? chart.y_right : chart.y);
    const scattered = chart.form === "scatter";
    return {
      type: chart.form,
      plugins: scattered ? [names()] : cut ? [cutBars(cut, colours)] : [],
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
    const colours = {
      ink: colour("--ink"),
      quiet: colour("--quiet"),
      line: colour("--line"),
      page: colour("--page"),
      family: (name) => colour(`--f-${name}`),
      series: darkPage.matches ? DARK : LIGHT,
    };
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Chart.defaults.font.size = 13;
    drawn.forEach((chart) => chart.destroy());
    drawn = charts.map(({ chart, places }, n) => {
      const canvas = document.getElementById(`chart-${n}`);
      // A legend of many names would leave its chart no room.
      const more = chart.form === "scatter" ? 0 : Math.max(0, chart.series.length - 6);
      canvas.parentNode.style.height = `${23 + more * (innerWidth < 700 ? 1.6 : 0.4)}rem`;
      return new Chart(canvas, configuration(chart, canvas, places, colours));
    });
    // For tests: how many charts of the page show data.
    const shown = drawn.filter((chart) => chart.chartArea?.height > 0 && chart.getVisibleDatasetCount() > 0);
    document.documentElement.dataset.drawn = shown.length;
    // And where the names are, in numbers only: for each scatter chart its frame, then each name with its point.
    const edges = ({ left, top, right, bottom }) => [left, top, right, bottom];
    const told = ({ box, point, line }) => [...edges(box), point.x, point.y, line ? 1 : 0];
    const scattered = drawn.filter((chart) => chart.names);
    document.documentElement.dataset.names =
      JSON.stringify(scattered.map((chart) => [edges(chart.chartArea), ...chart.names.map(told)]));
    // The colours of each chart's series, with those of the page and its text first; the cut bars; the lines that pass
    // gaps; and how wide the page is in which window.
    const { backgroundColor, color } = getComputedStyle(document.body);
    const shades = drawn.flatMap((chart) => chart.data.datasets.flatMap(({ borderColor }) => borderColor));
    const joined = drawn.flatMap((chart) => chart.data.datasets.map(({ spanGaps }) => (spanGaps ? 1 : 0)));
    const { scrollWidth, clientWidth } = document.documentElement;
    Object.assign(document.documentElement.dataset, {
      colours: [backgroundColor, color, ...shades].join(" | "),
      cut: drawn.flatMap((chart) => chart.cut ?? []).join(" "),
      joined: joined.join(" "),
      width: [scrollWidth, clientWidth, innerWidth].join(" "),
    });
  }
  draw();
  darkPage.addEventListener("change", draw);
  addEventListener("beforeprint", () => drawn.forEach((chart) => chart.resize()));
})();
