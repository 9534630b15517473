import { type Static, type TSchema, Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { parseTime } from '../../../pipelines/ingest/run-event/times.ts';
import { queryRuns as readRuns } from '../../../pipelines/runs/query-runs.ts';
import { selectNames } from '../../../pipelines/runs/run-select.ts';
import { nullable, optional, Timestamp, Uuid } from '../../server/formats.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { clickhouseErrors } from '../../server/operation-errors.ts';
import { runExtrasOf } from './run-extras-of.ts';
import { Run, RunType } from './run-schema.ts';

/** Larger limits are reduced to this: clients continue with the cursor. Other servers respond with an error. */
const maxLimitRows = 100;
const maxIds = 10_000;

/** Clients send a single id without a list. */
const oneOrMore = <T extends TSchema>(schema: T, maxItems: number, description: string) =>
  Type.Optional(Type.Union([Type.Array(schema, { maxItems }), schema, Type.Null()], { description }));
const accepted = (description: string) => ({ description: `Accepted; ${description}` });

/** Unknown keys are ignored: clients send some that have no meaning here. */
const Query = Type.Object({
  id: oneOrMore(Uuid(), maxIds, 'Return these runs and ignore all other conditions.'),
  trace: optional(Uuid()),
  parent_run: optional(Uuid()),
  run_type: optional(RunType),
  session: oneOrMore(Uuid(), maxIds, 'Projects. Default: all projects of the workspace.'),
  reference_example: oneOrMore(Uuid(), 1_000, 'Runs of these examples.'),
  execution_order: optional(Type.Literal(1, { description: '1 is the same as `is_root: true`.' })),
  start_time: optional(
    Timestamp({ description: 'Runs that started at or after this time, by the time in their dotted_order.' }),
  ),
  end_time: optional(
    Timestamp({ description: 'Runs that ended at or before this time. Excludes runs without an end.' }),
  ),
  error: optional(Type.Boolean()),
  is_root: optional(Type.Boolean()),
  cursor: optional(Type.String({ description: '`cursors.next` of the previous page.' })),
  limit: optional(
    Type.Integer({ minimum: 1, default: maxLimitRows, description: `Larger values are reduced to ${maxLimitRows}.` }),
  ),
  select: optional(Type.Array(Type.Union(selectNames.map((name) => Type.Literal(name))), { maxItems: 200 })),
  order: optional(
    Type.Union([Type.Literal('asc'), Type.Literal('desc')], {
      default: 'desc',
      description: 'By the start time in dotted_order.',
    }),
  ),
  skip_pagination: optional(Type.Boolean({ description: 'If true, the response has no cursor.' })),
  skip_prev_cursor: optional(Type.Boolean(accepted('responses have no cursor of the previous page.'))),
});

export const queryRuns = defineOperation({
  operationId: 'queryRuns',
  method: 'POST',
  path: '/runs/query',
  tag: 'runs',
  summary: 'Query runs, page by page',
  description:
    'Newest first by default. A page may contain fewer runs than `limit`; there are more pages as long as ' +
    '`cursors.next` is not null. New runs do not shift pages.',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  unsupported: {
    body: [
      'query',
      'filter',
      'trace_filter',
      'tree_filter',
      'search_filter',
      'use_experimental_search',
      'data_source_type',
    ],
    flags: ['use_experimental_search'],
  },
  errors: clickhouseErrors,
  schema: {
    body: Query,
    response: {
      200: Type.Object({
        runs: Type.Array(Run),
        cursors: Type.Object({ next: nullable(Type.String()) }),
        search_cursors: Type.Null(),
        parsed_query: Type.Null(),
      }),
    },
    // The response contains stored JSON, which must not be re-serialised.
    produces: 'application/json; charset=utf-8',
  },
  handler: async ({ caller, body, services, request }) => {
    const deps = { ...services, extras: runExtrasOf(services, request) };
    const page = await readRuns(deps, {
      tenantId: caller.workspaceId,
      runIds: normaliseIds(body.id),
      projectIds: normaliseIds(body.session),
      filter: {
        traceId: body.trace?.toLowerCase(),
        parentRunId: body.parent_run?.toLowerCase(),
        runType: body.run_type ?? undefined,
        isRoot: readIsRoot(body),
        hasError: body.error ?? undefined,
        startedFromMicros: parseTimeField(body, 'start_time'),
        endedUntilMicros: parseTimeField(body, 'end_time'),
        referenceExampleIds: normaliseIds(body.reference_example),
      },
      select: body.select ?? undefined,
      order: body.order ?? 'desc',
      limitRows: Math.min(body.limit ?? maxLimitRows, maxLimitRows),
      cursor: body.cursor || undefined,
      withCursor: body.skip_pagination !== true,
    });
    return new Answer({ body: page });
  },
});

/** An empty list counts as absent. */
function normaliseIds(value: string | readonly string[] | null | undefined): string[] | undefined {
  const ids = [value ?? []].flat().map((id) => id.toLowerCase());
  return ids.length > 0 ? ids : undefined;
}

function readIsRoot({ execution_order, is_root }: Static<typeof Query>): boolean | undefined {
  if (execution_order == null) return is_root ?? undefined;
  if (is_root === false) throw runlakeError('BAD_REQUEST', { reason: 'execution_order 1 contradicts is_root false.' });
  return true;
}

function parseTimeField(body: Static<typeof Query>, name: 'start_time' | 'end_time'): number | undefined {
  const text = body[name];
  if (text == null) return undefined;
  const micros = parseTime(text);
  if (micros !== undefined) return micros;
  const field = { loc: ['body', name], msg: 'must be an ISO 8601 date and time', type: 'date_time_format' };
  throw runlakeError('INVALID_REQUEST', {}, { fields: [field] });
}
