import { readTexts } from '../../read-search.ts';

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

export interface DatasetTab {
  readonly datasetId: string;
  readonly search: DatasetSearch;
  readonly onChange: (changes: DatasetSearch) => void;
}

export const readDatasetSearch: (search: Record<string, unknown>) => DatasetSearch = readTexts(
  'tab',
  'version',
  'split',
  'text',
  'example',
  'chosen',
  'from',
  'to',
);

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

const readCompareTexts = readTexts('selectedSessions', 'comparativeExperiment', 'example');

export function readCompareSearch(search: Record<string, unknown>): CompareSearch {
  const { show } = search;
  return {
    ...readCompareTexts(search),
    show: show === 'differences' || show === 'regressions' ? show : undefined,
  };
}
