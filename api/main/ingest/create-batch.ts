import { acceptBatch } from '../../../pipelines/ingest/accept/accept-batch.ts';
import { defineOperation } from '../../server/operation.ts';
import { acceptanceSchema, answerAccepted } from './acceptance.ts';
import { batchErrors } from './run-errors.ts';
import { senderOf } from './sender.ts';
import { requireJson, withBody } from './with-body.ts';

/** `POST /runs/batch`: posts and patches as JSON. */
export const createBatch = defineOperation({
  operationId: 'createRunBatch',
  method: 'POST',
  path: '/runs/batch',
  tag: 'ingest',
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
    const accept = (body: Buffer) => acceptBatch(senderOf(caller), body, services.accept);
    return answerAccepted(await withBody({ request, caller }, services.config, accept));
  },
});
