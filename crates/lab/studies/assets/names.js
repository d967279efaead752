// Where the names of a scatter chart's points stand.
//
// Invariants
// - A name is inside the plot and covers no other name. One for which there is no such place is left out; its point
//   still shows it under the mouse.
// - A name stands right of its point, or left if the point is right of the middle, and moves up or down, or to the
//   other side, only as far as it has to. If it moved by more than a few pixels, a line leads to it.
// - The same points have the same names in the same places.
//
// Leaves to others: measuring and drawing text (`report.js`).
const placeNames = (() => {
  "use strict";
  const HEIGHT = 14;
  // From the middle of a point to its name, and to the edge of its shape.
  const GAP = 9;
  const SHAPE = 5;
  // A name that moved no further is still next to its point.
  const NEAR = 8;
  const STEP = 2;
  // What a name on the other side, and a covered point or a crossing, are worth in pixels of a move.
  const OTHER_SIDE = 8;
  const CROSSED = 40;

  const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const isWithin = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;

  const sideOf = (line, x, y) => Math.sign((line.toX - line.x) * (y - line.y) - (line.toY - line.y) * (x - line.x));
  const cross = (a, b) =>
    sideOf(a, b.x, b.y) !== sideOf(a, b.toX, b.toY) && sideOf(b, a.x, a.y) !== sideOf(b, a.toX, a.toY);
  // A line that passes through a box crosses one of its diagonals.
  const passes = (line, box) =>
    cross(line, { x: box.left, y: box.top, toX: box.right, toY: box.bottom }) ||
    cross(line, { x: box.left, y: box.bottom, toX: box.right, toY: box.top });

  // The name of `point`, `moved` down and on one side of it.
  function candidate(point, moved, isRight) {
    const left = isRight ? point.x + GAP : point.x - GAP - point.width;
    const y = point.y + moved;
    const end = isRight ? left - 2 : left + point.width + 2;
    return {
      point,
      box: { left, right: left + point.width, top: y - HEIGHT / 2, bottom: y + HEIGHT / 2 },
      line: Math.abs(moved) > NEAR ? { x: point.x, y: point.y, toX: end, toY: y } : null,
    };
  }

  function cost(name, moved, isPreferred, placed, shapes) {
    const covered = shapes.filter(({ point, box }) =>
      point !== name.point && (overlap(name.box, box) || (name.line && passes(name.line, box))));
    const crossed = placed.filter(({ box, line }) =>
      (line && passes(line, name.box)) || (name.line && passes(name.line, box)) ||
      (line && name.line && cross(line, name.line)));
    return Math.abs(moved) + (isPreferred ? 0 : OTHER_SIDE) + CROSSED * (covered.length + crossed.length);
  }

  // `points` have `x`, `y` and the `width` of their names; an answer has the `box` of the name, and the `line` or null.
  return (points, area) => {
    const middle = (area.left + area.right) / 2;
    const shapes = points.map((point) => ({
      point,
      box: { left: point.x - SHAPE, right: point.x + SHAPE, top: point.y - SHAPE, bottom: point.y + SHAPE },
    }));
    // From the middle outwards: names stand towards the middle, so a further one passes over those before it.
    const inOrder = [...points].sort((a, b) => Math.abs(a.x - middle) - Math.abs(b.x - middle));
    const placed = [];
    for (const point of inOrder) {
      let best = null;
      // A move costs its length, so further ones cannot be better than what was found.
      for (let far = 0; far <= area.bottom - area.top && !(best?.costs <= far); far += STEP) {
        for (const [moved, isRight] of [[-far, true], [-far, false], [far, true], [far, false]]) {
          const name = candidate(point, moved, isRight);
          if (!isWithin(name.box, area) || placed.some(({ box }) => overlap(box, name.box))) {
            continue;
          }
          const costs = cost(name, moved, isRight === point.x <= middle, placed, shapes);
          if (!best || costs < best.costs) {
            best = { name, costs };
          }
        }
      }
      if (best) {
        placed.push(best.name);
      }
    }
    return placed;
  };
})();
