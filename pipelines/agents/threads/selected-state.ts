import type { ThreadState } from './thread.ts';

const keyOfValues = 'values.';

/** The fields of a state that `select` names, or all; `values.messages` is that key of the values alone. */
export function selectedState(state: ThreadState, select: readonly string[] | undefined): Partial<ThreadState> {
  if (select === undefined) return state;
  const fields = Object.fromEntries(Object.entries(state).filter(([name]) => select.includes(name)));
  const keys = select.filter((name) => name.startsWith(keyOfValues)).map((name) => name.slice(keyOfValues.length));
  if (keys.length === 0 || 'values' in fields) return fields;
  const values = Object.entries(state.values ?? {}).filter(([key]) => keys.includes(key));
  return { ...fields, values: Object.fromEntries(values) };
}
