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
  /** Ids of the experiments that are chosen, with commas between them. */
  readonly chosen?: string | undefined;
  /** Versions that are compared: times or tags. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
}

export function readDatasetSearch(search: Record<string, unknown>): DatasetSearch {
  const { tab, version, split, text, example, chosen, from, to } = search;
  return {
    tab: readText(tab),
    version: readText(version),
    split: readText(split),
    text: readText(text),
    example: readText(example),
    chosen: readText(chosen),
    from: readText(from),
    to: readText(to),
  };
}

/** Search parameters of the comparison of experiments, with the names that links of the SDKs use. */
export interface CompareSearch {
  /** Ids of the experiments with commas between them; the first is the one that others are compared to. */
  readonly selectedSessions?: string | undefined;
  /** Id of a comparative experiment: only its feedback is shown. */
  readonly comparativeExperiment?: string | undefined;
  /** Examples to show. Default: all. */
  readonly show?: 'differences' | 'regressions' | undefined;
  /** Id of the example that is open. */
  readonly example?: string | undefined;
}

export function readCompareSearch(search: Record<string, unknown>): CompareSearch {
  const { selectedSessions, comparativeExperiment, show, example } = search;
  return {
    selectedSessions: readText(selectedSessions),
    comparativeExperiment: readText(comparativeExperiment),
    show: show === 'differences' || show === 'regressions' ? show : undefined,
    example: readText(example),
  };
}

/** Returns a parameter as text. The router reads texts such as `1` as a number. */
function readText(value: unknown): string | undefined {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return typeof value === 'string' && value !== '' ? value : undefined;
}
