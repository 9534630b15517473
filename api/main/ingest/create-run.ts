import { acceptSingle } from '../../../pipelines/ingest/accept/accept-single.ts';
import { defineOperation } from '../../server/operation.ts';
import { acceptanceSchema, answerAccepted } from './acceptance.ts';
import { runErrors } from './run-errors.ts';
import { senderOf } from './sender.ts';
import { requireJson, withBody } from './with-body.ts';

/** `POST /runs`: one run. It needs no dotted_order: a root starts a trace, a child belongs to the trace of its parent. */
export const createRun = defineOperation({
  operationId: 'createRun',
  method: 'POST',
  path: '/runs',
  tag: 'ingest',
  summary: 'Send one run',
  description:
    'Responds with 202 when the run is durable. Sending it again has no effect. A run without an id gets a new one each time it is sent.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: runErrors,
  rawBody: { contentTypes: ['application/json'], description: 'A run.' },
  schema: { response: { 202: acceptanceSchema } },
  async handler({ caller, request, services }) {
    requireJson(request);
    const accept = (body: Buffer) => acceptSingle(senderOf(caller), { kind: 'post', body }, services.accept);
    return answerAccepted(await withBody({ request, caller }, services.config, accept));
  },
});
