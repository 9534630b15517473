export interface TextAtPath {
  /** Ends with the index of the text if the path leads to several texts. */
  readonly path: string;
  readonly text: string;
}

/**
 * Returns the texts of a value to index: those at `paths`, or by default at `fields`; none if `paths` is false or there
 * is no index. A path consists of field names separated by dots; `[2]`, `[-1]` and `[*]` select elements of a list; `$`
 * is the whole value as JSON. Values that are not text are ignored.
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
    return texts.map((text, index) => ({ path: texts.length > 1 ? `${path}.${index}` : path, text }));
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
