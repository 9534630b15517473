export interface TextAtPath {
  /** With the number of the text where the path leads to several. */
  readonly path: string;
  readonly text: string;
}

/**
 * The texts of a value that go into the index: those at `paths`, else at `fields`; none for false or without an index. A path names
 * fields, with dots between; `[2]`, `[-1]` and `[*]` are elements of a list; `$` is the whole value as JSON. Only text counts.
 */
export function textsOfItem(
  value: Readonly<Record<string, unknown>>,
  fields: readonly string[] | undefined,
  paths: false | readonly string[] | undefined,
): TextAtPath[] {
  if (fields === undefined || paths === false) return [];
  return [...new Set(paths ?? fields)].flatMap((path) => {
    const found = path === '$' ? [JSON.stringify(value)] : follow([value], path.match(/[^.[\]]+|\[[^\]]*\]/g) ?? []);
    const texts = found.filter((text): text is string => typeof text === 'string' && text !== '');
    return texts.map((text, place) => ({ path: texts.length > 1 ? `${path}.${place}` : path, text }));
  });
}

function follow(from: readonly unknown[], steps: readonly string[]): readonly unknown[] {
  const [step, ...rest] = steps;
  if (step === undefined) return from;
  const next = from.flatMap((value): unknown[] => {
    if (typeof value !== 'object' || value === null) return [];
    if (!step.startsWith('[')) return Object.hasOwn(value, step) ? [(value as Record<string, unknown>)[step]] : [];
    if (!Array.isArray(value)) return [];
    return step === '[*]' ? value : [value.at(Number(step.slice(1, -1)))];
  });
  return follow(next, rest);
}
