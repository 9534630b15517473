import type { FastifyRequest } from 'fastify';
import { attachmentUrls } from '../../../pipelines/attachments/attachment-urls.ts';
import { feedbackStats } from '../../../pipelines/feedback/feedback-stats.ts';
import type { RunExtras } from '../../../pipelines/runs/run-extras.ts';
import { publicUrlOf } from '../../server/public-base.ts';
import type { Services } from '../../server/services.ts';

/** Feedback and attachments of runs, with links that whoever sent `request` can follow. */
export function runExtrasOf({ warehouse, attachmentSigner, config }: Services, request: FastifyRequest): RunExtras {
  const linkBase = publicUrlOf('/public/attachments/', request, config);
  return {
    feedbackStats: (tenantId, runIds) => feedbackStats(warehouse, tenantId, runIds),
    attachmentUrls: (tenantId, runIds) =>
      attachmentUrls({ warehouse, signer: attachmentSigner, linkBase }, tenantId, runIds),
  };
}
