import { type Static, type TSchema, Type } from 'typebox';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { parseTime } from '../../../pipelines/ingest/run-event/times.ts';
import { queryRuns as readRuns } from '../../../pipelines/runs/query-runs.ts';
import { selectNames } from '../../../pipelines/runs/run-select.ts';
import { nullable, optional, Timestamp, Uuid } from '../../server/formats.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { warehouseErrors } from '../../server/operation-errors.ts';
import { runExtrasOf } from './run-extras-of.ts';
import { Run, RunType } from './run-schema.ts';

/** Larger limits are cut to this, where others answer with an error: clients go on with the cursor. */
const maxLimitRows = 100;
const maxIds = 10_000;

/** Clients send one id bare. */
const oneOrMore = <T extends TSchema>(schema: T, maxItems: number, description: string) =>
  Type.Optional(Type.Union([Type.Array(schema, { maxItems }), schema, Type.Null()], { description }));
const accepted = (description: string) => ({ description: `Accepted; ${description}` });

/** Keys that are not named here are let through: clients send some that mean nothing here. */
const Query = Type.Object({
  id: oneOrMore(Uuid(), maxIds, 'Only these runs. All other conditions are then ignored.'),
  trace: optional(Uuid()),
  parent_run: optional(Uuid()),
  run_type: optional(RunType),
  session: oneOrMore(Uuid(), maxIds, 'Projects; absent or empty: all of the workspace.'),
  reference_example: oneOrMore(Uuid(), 1_000, 'Examples that the run was made from.'),
  execution_order: optional(Type.Literal(1, { description: '1: the same as `is_root: true`.' })),
  start_time: optional(
    Timestamp({ description: 'Runs that started then or later, by the time in their dotted_order.' }),
  ),
  end_time: optional(
    Timestamp({ description: 'Runs that ended then or earlier. Runs that have no end are left out.' }),
  ),
  error: optional(Type.Boolean()),
  is_root: optional(Type.Boolean()),
  cursor: optional(Type.String({ description: '`cursors.next` of the page before.' })),
  limit: optional(
    Type.Integer({ minimum: 1, default: maxLimitRows, description: `More than ${maxLimitRows} counts as that.` }),
  ),
  select: optional(Type.Array(Type.Union(selectNames.map((name) => Type.Literal(name))), { maxItems: 200 })),
  order: optional(
    Type.Union([Type.Literal('asc'), Type.Literal('desc')], {
      default: 'desc',
      description: 'By the start time in dotted_order.',
    }),
  ),
  skip_pagination: optional(Type.Boolean({ description: 'true: no cursor.' })),
  skip_prev_cursor: optional(Type.Boolean(accepted('there is no cursor to the page before.'))),
});

export const queryRuns = defineOperation({
  operationId: 'queryRuns',
  method: 'POST',
  path: '/runs/query',
  tag: 'runs',
  summary: 'Runs that fit, page by page',
  description:
    'Newest first unless `order` says otherwise. A page may hold fewer runs than `limit`; there are more as long as ' +
    '`cursors.next` is not null. Runs that arrive meanwhile move no page.',
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
  errors: warehouseErrors,
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
    // The answer holds JSON exactly as it came, so that nothing may serialise it again.
    produces: 'application/json; charset=utf-8',
  },
  handler: async ({ caller, body, services, request }) => {
    const ports = { ...services, extras: runExtrasOf(services, request) };
    const page = await readRuns(ports, {
      tenantId: caller.workspaceId,
      runIds: idsOf(body.id),
      projectIds: idsOf(body.session),
      filter: {
        traceId: body.trace?.toLowerCase(),
        parentRunId: body.parent_run?.toLowerCase(),
        runType: body.run_type ?? undefined,
        isRoot: isRootOf(body),
        hasError: body.error ?? undefined,
        startedFromMicros: timeOf(body, 'start_time'),
        endedUntilMicros: timeOf(body, 'end_time'),
        referenceExampleIds: idsOf(body.reference_example),
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

/** An empty list asks for nothing, as an absent one does. */
function idsOf(value: string | readonly string[] | null | undefined): string[] | undefined {
  const ids = [value ?? []].flat().map((id) => id.toLowerCase());
  return ids.length > 0 ? ids : undefined;
}

function isRootOf({ execution_order, is_root }: Static<typeof Query>): boolean | undefined {
  if (execution_order == null) return is_root ?? undefined;
  if (is_root === false) throw fault('BAD_REQUEST', { reason: 'execution_order 1 and is_root false contradict.' });
  return true;
}

function timeOf(body: Static<typeof Query>, name: 'start_time' | 'end_time'): number | undefined {
  const text = body[name];
  if (text == null) return undefined;
  const micros = parseTime(text);
  if (micros !== undefined) return micros;
  const field = { loc: ['body', name], msg: 'must be an ISO 8601 date and time', type: 'date_time_format' };
  throw fault('INVALID_REQUEST', {}, { fields: [field] });
}
