import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { acceptOtlp } from '../../../pipelines/ingest/accept/accept-otlp.ts';
import { otlpResponse } from '../../../pipelines/ingest/otlp/otlp-response.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { batchErrors } from './run-errors.ts';
import { senderOf } from './sender.ts';
import { withBody } from './with-body.ts';

/**
 * `POST /otel/v1/traces`: the route that OTLP exporters use. Responses, including errors, have the encoding of the request.
 */
export const createOtlp = defineOperation({
  operationId: 'createOtlpTraces',
  method: 'POST',
  path: '/otel/v1/traces',
  tag: 'ingest',
  summary: 'Send OpenTelemetry traces',
  description:
    'OTLP over HTTP as protobuf or JSON, uncompressed, gzip or zstd. Each span becomes a run. Responds with 200 when all accepted ' +
    'spans are durable; `partial_success` contains the number of rejected spans and the first error. The header ' +
    '`Langsmith-Project` names the project of spans without one.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errorStyle: 'otlp',
  untraced: true,
  errors: [...batchErrors, 'INVALID_PROTOBUF'],
  rawBody: { contentTypes: ['application/x-protobuf', 'application/json'], description: 'ExportTraceServiceRequest' },
  schema: {
    response: { 200: Type.Object({}, { description: 'ExportTraceServiceResponse', additionalProperties: true }) },
  },
  async handler({ caller, request, services }) {
    const contentType = request.headers['content-type'];
    const projectName = readProjectName(request);
    const { rejected } = await withBody({ request, caller }, services.config, (body) =>
      acceptOtlp(senderOf(caller), { body, contentType, projectName }, services.accept),
    );
    const message = rejected.length === 0 ? '' : `Rejected: ${rejected[0]?.error.message}`;
    const answer = otlpResponse(contentType, rejected.length, message);
    return new Answer({ headers: { 'content-type': answer.contentType }, body: answer.body });
  },
});

function readProjectName(request: FastifyRequest): string | undefined {
  const header = request.headers['langsmith-project'];
  return typeof header === 'string' && header !== '' ? header : undefined;
}
