/** Fields that facets list the most frequent values of. */
export type FacetName = 'name' | 'run_type' | 'status';

/** A value that many runs have, with the filter that selects these runs. */
export interface RunFacet {
  readonly key: FacetName;
  readonly value: string;
  readonly query: string;
  /** Number of runs. Approximate if the field has more than a thousand values. */
  readonly n: number;
}

export function formatFacets(
  facets: Readonly<Partial<Record<FacetName, readonly (readonly [value: string, count: number, error: number])[]>>>,
): RunFacet[] {
  return Object.entries(facets).flatMap(([name, values]) =>
    values.map(([value, n]) => ({ key: name as FacetName, value, query: `eq(${name}, ${JSON.stringify(value)})`, n })),
  );
}
