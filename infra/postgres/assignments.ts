/**
 * Builds the assignments of an UPDATE that leaves some columns unchanged: `, a = $3, b = $4`, to follow another one.
 *
 * @param columns Values by column; undefined for a column that stays unchanged.
 * @param first Number of the parameter that is the first of `values`.
 */
export function buildAssignments(
  columns: Readonly<Record<string, unknown>>,
  first: number,
): { readonly assignments: string; readonly values: readonly unknown[] } {
  const changed = Object.entries(columns).filter(([, value]) => value !== undefined);
  return {
    assignments: changed.map(([name], index) => `, ${name} = $${first + index}`).join(''),
    values: changed.map(([, value]) => value),
  };
}
