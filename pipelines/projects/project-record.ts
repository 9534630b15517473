/** A row of `projects`. Times are ISO 8601 with microseconds. */
export interface ProjectRecord {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
  readonly description: string | null;
  readonly extra: Record<string, unknown> | null;
  readonly start_time: string;
  readonly end_time: string | null;
  readonly default_dataset_id: string | null;
  readonly reference_dataset_id: string | null;
  readonly trace_tier: string | null;
  readonly num_examples: number | null;
  readonly num_repetitions: number | null;
  readonly evaluator_keys: string[] | null;
}

export type ProjectRow = Omit<ProjectRecord, 'extra'> & { readonly extra: string | null };

export const projectColumns = `id, workspace_id AS tenant_id, name, description, extra, start_time, end_time,
  default_dataset_id, reference_dataset_id, trace_tier, num_examples, num_repetitions, evaluator_keys`;

export function toProjectRecord(row: ProjectRow): ProjectRecord {
  return { ...row, extra: row.extra === null ? null : JSON.parse(row.extra) };
}

/** Values of the columns `extra` and `metadata` for a given `extra`; null for both if it is absent. */
export function extraColumns(
  extra: Readonly<Record<string, unknown>> | null | undefined,
): [string | null, string | null] {
  if (extra === null || extra === undefined) return [null, null];
  const metadata = Object.hasOwn(extra, 'metadata') ? extra.metadata : undefined;
  return [JSON.stringify(extra), asJsonb(isObject(metadata) ? metadata : {})];
}

/** JSON that `jsonb` accepts: NUL characters and lone surrogates, which it rejects, become U+FFFD. */
export function asJsonb(value: object): string {
  return JSON.stringify(value).replace(/(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][\da-f]{2})/gi, '$1\ufffd');
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
