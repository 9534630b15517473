import type { FastifyRequest } from 'fastify';
import { attachmentUrls } from '../../pipelines/attachments/attachment-urls.ts';
import { readFeedbackStatsByRun } from '../../pipelines/feedback/feedback-stats.ts';
import type { RunExtras } from '../../pipelines/runs/run-columns.ts';
import { readReferenceDatasets, readRunUses } from '../../pipelines/runs/run-uses.ts';
import { readShareTokens } from '../../pipelines/shares/share-tokens.ts';
import { buildPageUrl, buildPublicUrl } from '../server/public-base.ts';
import type { Services } from '../server/services.ts';

/**
 * Adds to the services the functions that read the feedback, attachment links, shares, uses and datasets of runs. Links
 * are absolute and can be reached by the sender of `request`.
 */
export function addRunExtras(services: Services, request: FastifyRequest): Services & { readonly extras: RunExtras } {
  const { clickhouse, database, attachmentSigner, config } = services;
  const linkBase = buildPublicUrl('/public/attachments/', request, config);
  const extras: RunExtras = {
    feedbackStats: (tenantId, runIds) => readFeedbackStatsByRun(clickhouse, tenantId, runIds),
    attachmentUrls: (tenantId, runIds) =>
      attachmentUrls({ clickhouse, signer: attachmentSigner, linkBase }, tenantId, runIds),
    uses: (tenantId, runIds) => readRunUses(database, tenantId, runIds),
    datasets: (tenantId, projectIds) => readReferenceDatasets(database, tenantId, projectIds),
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
  return { ...services, extras };
}
