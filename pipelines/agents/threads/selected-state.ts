import type { ThreadState } from './thread.ts';

const valuesPrefix = 'values.';

/**
 * Returns the fields of a state that `select` names, or all fields if `select` is undefined. `values.messages` selects
 * one key of the values.
 */
export function selectedState(state: ThreadState, select: readonly string[] | undefined): Partial<ThreadState> {
  if (select === undefined) return state;
  const fields = Object.fromEntries(Object.entries(state).filter(([name]) => select.includes(name)));
  const keys = select.filter((name) => name.startsWith(valuesPrefix)).map((name) => name.slice(valuesPrefix.length));
  if (keys.length === 0 || 'values' in fields) return fields;
  const values = Object.entries(state.values ?? {}).filter(([key]) => keys.includes(key));
  return { ...fields, values: Object.fromEntries(values) };
}
