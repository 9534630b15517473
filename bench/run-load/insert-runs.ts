import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';

/** Runs of one project, evenly over a time range. */
export interface RunLoad {
  readonly tenant: string;
  readonly project: string;
  /** Number of runs of the whole project; a run's number determines its time. */
  readonly total: number;
  readonly beginSeconds: number;
  readonly spanSeconds: number;
  /** Approximate bytes of JSON in a run. */
  readonly bytes: number;
  /** SQL of values in place of the usual ones; `number` is the number of the run. */
  readonly values?: { readonly name: string; readonly tags: string; readonly metadata: string; readonly word: string };
  /** Whether the model calls state tokens and costs, and the runs of a trace are children of the first. */
  readonly usage?: boolean;
}

const usageColumns = `prompt_tokens, completion_tokens, total_tokens, prompt_cost, completion_cost, total_cost, first_token_time`;
const usage = [
  '10 + cityHash64(run) % 1000',
  '5 + cityHash64(run) % 100',
  '15 + cityHash64(run) % 1000 + cityHash64(run) % 100',
  `concat('0.000', toString(100 + cityHash64(run) % 900))`,
  `concat('0.00', toString(100 + cityHash64(run) % 900))`,
  `toString(toDecimal64(concat('0.000', toString(100 + cityHash64(run) % 900)), 8) + toDecimal64(concat('0.00', toString(100 + cityHash64(run) % 900)), 8))`,
  'began + INTERVAL 1 + cityHash64(run) % 500000 MICROSECOND',
]
  .map((value) => `if(number % 3 = 0 AND number % 5 != 0, ${value}, NULL)`)
  .join(', ');
const segment = `'20260101T000000000000Z'`;
const nestedOrder = `concat(${segment}, toString(trace), if(number % 5 = 0, '', concat('.', ${segment}, toString(run)))), if(number % 5 = 0, NULL, trace)`;

/**
 * Inserts runs number `first` to `first + count` as the sink would: once as posts with inputs, once as patches with
 * outputs, so that the newest are not merged. Traces of five runs; inputs, metadata and outputs are random letters,
 * which compress badly. Two percent failed.
 */
export async function insertRuns(clickhouse: ClickHouse, load: RunLoad, first: number, count: number): Promise<void> {
  const id = (text: string) => `toUUID(lower(hex(MD5(concat({project:String}, ${text})))))`;
  const text = (share: number, seed: number) =>
    `hex(randomString(${Math.round((load.bytes * share) / 2)} + number % 2, ${seed}))`;
  const { name, tags, metadata, word } = load.values ?? { name: `'step'`, tags: 'NULL', metadata: `''`, word: `''` };
  const anyType = `['llm', 'chain', 'tool'][1 + number % 3]`;
  const runType = load.usage ? `if(number % 5 = 0, 'chain', ${anyType})` : anyType;
  const post = `${name}, ${tags}, ${runType}, began,
    concat('{"text":"', ${text(0.28, 1)}, '"}'), concat('{"metadata":{', ${metadata}, '"note":"', ${text(0.18, 2)}, '"}}')`;
  const patch = `began + 1, concat('{"text":"', ${word}, ${text(0.48, 3)}, '"}'), if(number % 50 = 7, '"boom"', NULL)`;
  for (const [isPatch, columns, values] of [
    [false, 'name, tags, run_type, started_at, inputs, extra', post],
    [
      true,
      `ended_at, outputs, error${load.usage ? `, run_type, ${usageColumns}` : ''}`,
      load.usage ? `${patch}, ${runType}, ${usage}` : patch,
    ],
  ]) {
    await clickhouse.command({
      name: 'bench-insert',
      sql: `INSERT INTO run_events (version, location_version, is_patch, tenant_id, session_id, start_time, trace_id, id, trace_time, first_received_at, user_id, key_id,
          dotted_order, parent_run_id, ${columns})
        WITH fromUnixTimestamp64Micro(toInt64(({begin:UInt64} + number * {span:UInt64} / {total:UInt64}) * 1000000)) AS began,
          ${id('toString(number - number % 5)')} AS trace, ${id('toString(number)')} AS run
        SELECT 1, 1, ${isPatch}, {tenant:UUID}, {project:UUID}, began, trace, run, began, began, run, run,
          ${load.usage ? nestedOrder : `concat('20260101T000000000000Z', toString(trace)), NULL`}, ${values}
        FROM numbers({first:UInt64}, {count:UInt64})`,
      params: {
        tenant: load.tenant,
        project: load.project,
        total: load.total,
        begin: load.beginSeconds,
        span: load.spanSeconds,
        first,
        count,
      },
    });
  }
}
