import { readTexts } from '../../read-search.ts';

/** Search parameters of the list of exports. */
export interface ExportsSearch {
  readonly tab?: ExportsTab | undefined;
}
export const exportsTabs = ['Exports', 'Schedules', 'Destinations'] as const;
export type ExportsTab = (typeof exportsTabs)[number];

export function readExportsSearch({ tab }: Record<string, unknown>): ExportsSearch {
  return { tab: exportsTabs.find((each) => each === tab) };
}

/** Search parameters of a new export: the whole form is in the address. */
export interface NewExportSearch {
  readonly project?: string | undefined;
  readonly destination?: string | undefined;
  /** UTC, as the value of an input of the type `datetime-local`. */
  readonly from?: string | undefined;
  readonly until?: string | undefined;
  /** Hours of the interval of a schedule. Unset: one export. */
  readonly every?: number | undefined;
  readonly filter?: string | undefined;
  readonly version?: 'v1' | undefined;
  readonly compression?: 'none' | 'gzip' | 'snappy' | undefined;
  readonly columns?: string | undefined;
}

const readNewExportTexts = readTexts('project', 'destination', 'filter', 'columns');

export function readNewExportSearch(search: Record<string, unknown>): NewExportSearch {
  const { every, version, compression } = search;
  return {
    ...readNewExportTexts(search),
    from: readLocalTime(search.from),
    until: readLocalTime(search.until),
    every: typeof every === 'number' ? every : undefined,
    version: version === 'v1' ? 'v1' : undefined,
    compression: (['none', 'gzip', 'snappy'] as const).find((each) => each === compression),
  };
}

function readLocalTime(value: unknown): string | undefined {
  return typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(value) ? value : undefined;
}

/** Search parameters of an export: the day whose files are shown, and the program of the snippet. */
export interface ExportSearch {
  readonly day?: string | undefined;
  readonly reader?: string | undefined;
}

export const readExportSearch: (search: Record<string, unknown>) => ExportSearch = readTexts('day', 'reader');
