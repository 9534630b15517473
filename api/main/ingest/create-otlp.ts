import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { acceptOtlp } from '../../../pipelines/ingest/accept/accept-otlp.ts';
import { otlpResponse } from '../../../pipelines/ingest/otlp/otlp-response.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { batchErrors } from './run-errors.ts';
import { senderOf } from './sender.ts';
import { withBody } from './with-body.ts';

/** `POST /otel/v1/traces`: what OTLP exporters send. Answers, also of faults, are in the encoding of the request. */
export const createOtlp = defineOperation({
  operationId: 'createOtlpTraces',
  method: 'POST',
  path: '/otel/v1/traces',
  tag: 'ingest',
  summary: 'Send OpenTelemetry traces',
  description:
    'OTLP over HTTP, protobuf or JSON, plain, gzip or zstd. Each span becomes a run. Answers 200 when everything that was taken is ' +
    'durable; `partial_success` counts the spans that were not, and says why. The header `Langsmith-Project` names the project of ' +
    'spans that name none.',
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
    const projectName = projectOf(request);
    const { rejected } = await withBody({ request, caller }, services.config, (body) =>
      acceptOtlp(senderOf(caller), { body, contentType, projectName }, services.accept),
    );
    const message = rejected.length === 0 ? '' : `Not taken: ${rejected[0]?.error.message}`;
    const answer = otlpResponse(contentType, rejected.length, message);
    return new Answer({ headers: { 'content-type': answer.contentType }, body: answer.body });
  },
});

function projectOf(request: FastifyRequest): string | undefined {
  const header = request.headers['langsmith-project'];
  return typeof header === 'string' && header !== '' ? header : undefined;
}
