import type { FastifyRequest } from 'fastify';
import { attachmentUrls } from '../../../pipelines/attachments/attachment-urls.ts';
import { feedbackStats } from '../../../pipelines/feedback/feedback-stats.ts';
import type { RunExtras } from '../../../pipelines/runs/run-extras.ts';
import { publicUrlOf } from '../../server/public-base.ts';
import type { Services } from '../../server/services.ts';

/**
 * Returns the sources of feedback and attachment links of runs. Links are absolute and reachable for the sender of `request`.
 */
export function runExtrasOf({ clickhouse, attachmentSigner, config }: Services, request: FastifyRequest): RunExtras {
  const linkBase = publicUrlOf('/public/attachments/', request, config);
  return {
    feedbackStats: (tenantId, runIds) => feedbackStats(clickhouse, tenantId, runIds),
    attachmentUrls: (tenantId, runIds) =>
      attachmentUrls({ clickhouse, signer: attachmentSigner, linkBase }, tenantId, runIds),
  };
}
