import { Type } from 'typebox';
import { acceptSingle } from '../../../pipelines/ingest/accept/accept-single.ts';
import { defineOperation } from '../../server/operation.ts';
import { acceptanceSchema, answerAccepted } from './acceptance.ts';
import { patchErrors } from './run-errors.ts';
import { senderOf } from './sender.ts';
import { requireJson, withBody } from './with-body.ts';

/** `PATCH /runs/{run_id}`: updates a run. A patch without trace_id and dotted_order waits briefly for the run to appear. */
export const updateRun = defineOperation({
  operationId: 'updateRun',
  method: 'PATCH',
  path: '/runs/:run_id',
  tag: 'ingest',
  summary: 'Patch one run',
  description:
    'A field of the patch replaces that of the post, in whichever order they arrive. With trace_id and dotted_order the patch ' +
    'may arrive before its post. Without them the run must appear within 5 s, otherwise 404.',
  access: { permission: 'runs:write', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: patchErrors,
  rawBody: { contentTypes: ['application/json'], description: 'The fields to set.' },
  schema: { params: Type.Object({ run_id: Type.String({ format: 'uuid' }) }), response: { 202: acceptanceSchema } },
  async handler({ caller, params, request, services }) {
    requireJson(request);
    const patch = { kind: 'patch', idOutside: params.run_id.toLowerCase() } as const;
    const accept = (body: Buffer) => acceptSingle(senderOf(caller), { ...patch, body }, services.accept);
    return answerAccepted(await withBody({ request, caller }, services.config, accept));
  },
});
