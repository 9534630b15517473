import { isUtf8 } from 'node:buffer';
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { acceptBatch } from '../../pipelines/ingest/accept/accept-batch.ts';
import { acceptMultipart } from '../../pipelines/ingest/accept/accept-multipart.ts';
import { acceptOtlp } from '../../pipelines/ingest/accept/accept-otlp.ts';
import { acceptSingle } from '../../pipelines/ingest/accept/accept-single.ts';
import { type Acceptance, maxListedRejections, type RunDraft } from '../../pipelines/ingest/accept/draft.ts';
import type { BodyMemory } from '../../pipelines/ingest/body/body-budget.ts';
import { buildOtlpResponse } from '../../pipelines/ingest/otlp/read-otlp.ts';
import { addressForm, nameAgentProject } from '../../pipelines/projects/agent-address.ts';
import type { WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import { defineOperation, RawResponse, type WorkspaceRequest } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { requireJson, withBody } from '../server/request-body.ts';
import type { Services } from '../server/services.ts';

/** Response of the ingest operations. It is empty if all items were accepted. */
const acceptanceSchema = Type.Object(
  {
    message: Type.Optional(
      Type.String({ description: 'Number of accepted items (runs, attachments, feedback), if some were rejected.' }),
    ),
    rejected: Type.Optional(
      Type.Array(
        Type.Object({
          run: Type.String({ description: 'Id of the run, or name of the part if it is not a run.' }),
          code: Type.String({ description: 'Error code.' }),
          reason: Type.String(),
        }),
        { description: `Rejected items with their errors, at most ${maxListedRejections}.` },
      ),
    ),
  },
  { description: 'All accepted items are durable.' },
);

/**
 * Checks the usage limits, passes the body to `accept`, and logs which items were rejected. Returns headers for the
 * response too.
 *
 * @param mayHaveNoRuns If true, `accept` gets the body although a hard limit is reached, and must throw `refusal` if it
 *   has runs.
 * @throws USAGE_LIMIT_REACHED; errors of `accept`.
 */
async function acceptWithinLimits(
  { caller, request, services }: WorkspaceRequest,
  accept: (body: Buffer, memory: BodyMemory, refusal: RunlakeError | undefined) => Promise<Acceptance>,
  { mayHaveNoRuns = false } = {},
): Promise<Acceptance & { readonly headers: Record<string, string> }> {
  const { headers, refusal } = await checkUsage(services, caller);
  if (refusal && !mayHaveNoRuns) throw refusal;
  const acceptBody = (body: Buffer, memory: BodyMemory) => accept(body, memory, refusal);
  const acceptance = await withBody({ request, caller }, services.config, acceptBody);
  logRejections(request, caller, acceptance);
  return { ...acceptance, headers };
}

/** Stock clients do not read the body of a 202 response, so the log has to say what was rejected. */
function logRejections(request: FastifyRequest, { workspaceId }: WorkspaceCaller, { accepted, rejected }: Acceptance) {
  const [first] = rejected;
  if (first === undefined) return;
  request.server.log.info(
    {
      ...{ requestId: request.id, workspaceId, accepted, rejected: rejected.length },
      first: { run: first.run, code: first.error.code, reason: first.error.message },
    },
    'items of an ingest request rejected',
  );
}

interface UsageCheck {
  /** For the response. */
  readonly headers: Record<string, string>;
  /** Present if runs must be refused with this error. */
  readonly refusal?: RunlakeError;
}

async function checkUsage(services: Services, { workspaceId }: WorkspaceCaller): Promise<UsageCheck> {
  try {
    const warning = await services.usageLimits.check(workspaceId);
    return { headers: warning === undefined ? {} : { 'x-usage-warning': warning } };
  } catch (error) {
    if (isRunlakeError(error) && error.code === 'USAGE_LIMIT_REACHED') return { headers: {}, refusal: error };
    throw error;
  }
}

/** Builds the 202 response, which lists the rejected items. */
function buildAcceptedResponse({
  accepted,
  rejected,
  headers,
}: Awaited<ReturnType<typeof acceptWithinLimits>>): RawResponse {
  if (rejected.length === 0) return new RawResponse({ status: 202, headers, body: {} });
  const total = accepted + rejected.length;
  return new RawResponse({
    status: 202,
    headers,
    body: {
      message: `${accepted} of ${total} items were accepted. ${rejected[0]?.error.message ?? ''}`,
      rejected: rejected
        .slice(0, maxListedRejections)
        .map(({ run, error }) => ({ run, code: error.code, reason: error.message })),
    },
  });
}

/** Errors of operations that accept runs in any format. */
const runErrors = [
  'INVALID_RUN',
  'INVALID_JSON',
  'INVALID_UTF8',
  'TOO_DEEP',
  'RUN_TOO_LARGE',
  'PROJECT_UNKNOWN',
  'LIMIT_REACHED',
  'USAGE_LIMIT_REACHED',
  'OVERLOADED',
  'EVENT_LOG_UNAVAILABLE',
] as const;

/** Errors of the operations that accept batches. */
const batchErrors = [...runErrors, 'ALL_RUNS_INVALID', 'TOO_MANY_PARTS'] as const;

/** Errors of the operation that patches a run. It must find the run. */
const patchErrors = [...runErrors, ...clickhouseErrors, 'RUN_UNKNOWN', 'NOT_STORED_YET', 'KAFKA_UNAVAILABLE'] as const;

/** `POST /runs/batch`: posts and patches as JSON. */
const createBatch = defineOperation({
  operationId: 'createRunBatch',
  method: 'POST',
  path: '/runs/batch',
  summary: 'Send a batch of runs as JSON',
  description:
    'Responds with 202 when all accepted runs are durable. The response lists invalid runs; they do not affect the other runs. ' +
    '400 only if all runs are invalid. Each run needs trace_id and dotted_order.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: batchErrors,
  rawBody: { contentTypes: ['application/json'], description: '`{"post": [run, …], "patch": [run, …]}`' },
  schema: { response: { 202: acceptanceSchema } },
  async handler({ caller, request, services }) {
    requireJson(request);
    const accept = (body: Buffer, memory: BodyMemory) => acceptBatch(caller, { body, memory }, services.accept);
    return buildAcceptedResponse(await acceptWithinLimits({ caller, request, services }, accept));
  },
});

/** `POST /runs/multipart`: the route that the official SDKs use. */
const createMultipart = defineOperation({
  operationId: 'createRunMultipart',
  method: 'POST',
  path: '/runs/multipart',
  summary: 'Send a batch of runs as multipart/form-data',
  description:
    'Parts: `post.<run id>` and `patch.<run id>` (a run as JSON), `post|patch.<run id>.<field>` (inputs, outputs, events, extra, ' +
    'error, serialized), `feedback.<id>` (JSON), `attachment.<run id>.<name>` (bytes). A repeated `post.<run id>` or ' +
    '`patch.<run id>` is a further event, to which the following fields belong. The body may be compressed with gzip or zstd. ' +
    'Responds with 202 when all accepted items are durable; the response lists invalid items.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: [...batchErrors, 'INVALID_MULTIPART', 'INVALID_FEEDBACK', 'INVALID_ATTACHMENT'],
  rawBody: { contentTypes: ['multipart/form-data'], description: 'Runs, feedback and attachments as parts.' },
  schema: { response: { 202: acceptanceSchema } },
  async handler({ caller, request, services }) {
    const { disconnected } = request;
    const contentType = request.headers['content-type'] ?? '';
    const accept = (body: Buffer, memory: BodyMemory, refusal: RunlakeError | undefined) =>
      acceptMultipart(caller, { body, contentType, memory, disconnected, refusal }, services.accept);
    // The Python SDK sends feedback in such bodies, too; usage limits do not apply to it.
    const limits = { mayHaveNoRuns: true };
    return buildAcceptedResponse(await acceptWithinLimits({ caller, request, services }, accept, limits));
  },
});

/**
 * `POST /otel/v1/traces`: the route that OTLP exporters use. Responses and errors have the same encoding as the
 * request.
 */
const createOtlp = defineOperation({
  operationId: 'createOtlpTraces',
  method: 'POST',
  path: '/otel/v1/traces',
  summary: 'Send OpenTelemetry traces',
  description:
    'OTLP over HTTP as protobuf or JSON, uncompressed, gzip or zstd. Each span becomes a run. Responds with 200 when all accepted ' +
    'spans are durable; `partial_success` contains the number of rejected spans and the first error. The header ' +
    '`Langsmith-Project` names the project of spans without one; `Langsmith-Agent-Id` and `Langsmith-Agent-Environment` name an ' +
    'agent instead.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errorStyle: 'otlp',
  untraced: true,
  errors: [...batchErrors, 'INVALID_PROTOBUF'],
  rawBody: { contentTypes: ['application/x-protobuf', 'application/json'], description: 'ExportTraceServiceRequest' },
  schema: {
    response: { 200: Type.Object({}, { description: 'ExportTraceServiceResponse', additionalProperties: true }) },
    produces: 'application/json',
    alsoProduces: { 'application/x-protobuf': Type.Unknown({ description: 'ExportTraceServiceResponse' }) },
  },
  async handler({ caller, request, services }) {
    const contentType = request.headers['content-type'];
    const project = readHeaderProject(request);
    const { rejected, headers } = await acceptWithinLimits({ caller, request, services }, (body, memory) =>
      acceptOtlp(caller, { body, contentType, project, memory }, services.accept),
    );
    const message = rejected.length === 0 ? '' : `Rejected: ${rejected[0]?.error.message}`;
    const response = buildOtlpResponse(contentType, rejected.length, message);
    return new RawResponse({ headers: { ...headers, 'content-type': response.contentType }, body: response.body });
  },
});

/** Decodes the value of a header: Node reads the bytes as Latin-1, but most clients send UTF-8. */
function decodeHeader(value: string): string {
  const bytes = Buffer.from(value, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : value;
}

/**
 * Returns the project, or the agent, that the headers of an OTLP request name.
 *
 * @throws BAD_REQUEST if they name both, or no valid agent.
 */
function readHeaderProject({ headers }: FastifyRequest): Pick<RunDraft, 'projectName' | 'agentProject'> {
  const [projectName, id, environment] = (
    ['langsmith-project', 'langsmith-agent-id', 'langsmith-agent-environment'] as const
  ).map((name) =>
    typeof headers[name] === 'string' && headers[name] !== '' ? decodeHeader(headers[name]) : undefined,
  );
  if (id === undefined && environment === undefined) return { projectName };
  const agentProject = nameAgentProject(id ?? '', environment ?? '');
  const reason =
    projectName !== undefined
      ? 'The headers name both a project and an agent.'
      : `Langsmith-Agent-Id and Langsmith-Agent-Environment must form ${addressForm}.`;
  if (projectName !== undefined || agentProject === undefined) throw runlakeError('BAD_REQUEST', { reason });
  return { agentProject };
}

/**
 * `POST /runs`: accepts one run. The run need not have a dotted_order: a root run starts a trace, and a child run
 * belongs to the trace of its parent, for which the operation waits briefly.
 */
const createRun = defineOperation({
  operationId: 'createRun',
  method: 'POST',
  path: '/runs',
  summary: 'Send one run',
  description:
    'Responds with 202 when the run is durable. Sending it again has no effect. A run without an id gets a new one each time it is sent. ' +
    'Without trace_id and dotted_order, a run with a parent_run_id gets the trace of its parent, which must appear within 5 s, otherwise 422; 503 while accepted events are not stored.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: [...runErrors, ...clickhouseErrors, 'NOT_STORED_YET', 'KAFKA_UNAVAILABLE'],
  rawBody: { contentTypes: ['application/json'], description: 'A run.' },
  schema: { response: { 202: acceptanceSchema } },
  async handler({ caller, request, services }) {
    requireJson(request);
    const accept = (body: Buffer) => acceptSingle(caller, { kind: 'post', body }, services.accept);
    return buildAcceptedResponse(await acceptWithinLimits({ caller, request, services }, accept));
  },
});

/**
 * `PATCH /runs/{run_id}`: updates a run. If the patch has no trace_id and dotted_order, the operation waits briefly
 * until the run exists.
 */
const updateRun = defineOperation({
  operationId: 'updateRun',
  method: 'PATCH',
  path: '/runs/:run_id',
  summary: 'Patch one run',
  description:
    'A field of the patch replaces that of the post, in whichever order they arrive. With trace_id and dotted_order the patch ' +
    'may arrive before its post. Without them the run must appear within 5 s, otherwise 404; 503 while accepted events are not stored.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: patchErrors,
  rawBody: { contentTypes: ['application/json'], description: 'The fields to set.' },
  schema: { params: Type.Object({ run_id: Type.String({ format: 'uuid' }) }), response: { 202: acceptanceSchema } },
  async handler({ caller, params, request, services }) {
    requireJson(request);
    const patch = { kind: 'patch', pathId: params.run_id.toLowerCase() } as const;
    const accept = (body: Buffer) => acceptSingle(caller, { ...patch, body }, services.accept);
    return buildAcceptedResponse(await acceptWithinLimits({ caller, request, services }, accept));
  },
});

export const ingestOperations = [createRun, updateRun, createBatch, createMultipart, createOtlp];
