/** A JSON value of a run, as bytes of the request body. */
export interface JsonValue {
  readonly kind: 'object' | 'array' | 'string' | 'number' | 'true' | 'false' | 'null';
  /** The text of the value, without white space around it. */
  readonly bytes: Buffer;
}

/** Members of a run that Runlake stores; it accepts all others and ignores them. Source: the public run schema. */
export const runKeys = [
  'id',
  'trace_id',
  'dotted_order',
  'parent_run_id',
  'session_id',
  'session_name',
  'reference_example_id',
  'name',
  'run_type',
  'start_time',
  'end_time',
  'tags',
  'inputs',
  'outputs',
  'error',
  'events',
  'extra',
  'serialized',
] as const;
export type RunKey = (typeof runKeys)[number];

/** Members that may be parts of their own in a multipart body. */
export const partKeys = [
  'inputs',
  'outputs',
  'error',
  'events',
  'extra',
  'serialized',
] as const satisfies readonly RunKey[];
export type PartKey = (typeof partKeys)[number];

export type RunMembers = { [K in RunKey]?: JsonValue };
