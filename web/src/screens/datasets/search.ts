/** Search parameters of the screen of a dataset: everything that it shows is in the address. */
export interface DatasetSearch {
  /** Default: Examples. */
  readonly tab?: string | undefined;
  /** Version whose examples are shown: a time or a tag. Default: the newest. */
  readonly version?: string | undefined;
  readonly split?: string | undefined;
  /** Part of inputs or outputs. */
  readonly text?: string | undefined;
  /** Id of the example that is open, or `new`. */
  readonly example?: string | undefined;
  /** Versions that are compared: times or tags. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
}

export function readDatasetSearch(search: Record<string, unknown>): DatasetSearch {
  const { tab, version, split, text, example, from, to } = search;
  return {
    tab: readText(tab),
    version: readText(version),
    split: readText(split),
    text: readText(text),
    example: readText(example),
    from: readText(from),
    to: readText(to),
  };
}

/** Returns a parameter as text. The router reads texts such as `1` as a number. */
function readText(value: unknown): string | undefined {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return typeof value === 'string' && value !== '' ? value : undefined;
}
