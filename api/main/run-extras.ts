import type { FastifyRequest } from 'fastify';
import { attachmentUrls } from '../../pipelines/attachments/attachment-urls.ts';
import { readFeedbackStatsByRun } from '../../pipelines/feedback/feedback-stats.ts';
import type { RunExtras } from '../../pipelines/runs/run-columns.ts';
import { readShareTokens } from '../../pipelines/shares/share-tokens.ts';
import { buildPageUrl, buildPublicUrl } from '../server/public-base.ts';
import type { Services } from '../server/services.ts';

/**
 * Returns the functions that read the feedback, attachment links and shares of runs. Links are absolute and can be
 * reached by the sender of `request`.
 */
export function createRunExtras(services: Services, request: FastifyRequest): RunExtras {
  const { clickhouse, attachmentSigner, config } = services;
  const linkBase = buildPublicUrl('/public/attachments/', request, config);
  return {
    feedbackStats: (tenantId, runIds) => readFeedbackStatsByRun(clickhouse, tenantId, runIds),
    attachmentUrls: (tenantId, runIds) =>
      attachmentUrls({ clickhouse, signer: attachmentSigner, linkBase }, tenantId, runIds),
    async shares(tenantId, traceIds) {
      const tokens = await readShareTokens(services, { kind: 'trace', workspaceId: tenantId }, traceIds);
      return new Map(
        [...tokens].map(([traceId, token]) => [
          traceId,
          { token, url: buildPageUrl(`/public/${token}/r`, request, config) },
        ]),
      );
    },
  };
}
