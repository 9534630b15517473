import { describe, expect, it } from 'vitest';
import { toCanonicalUrl } from '../../../api/server/canonical-url.ts';

const root = new Set(['docs', 'metrics', 'openapi.json']);

describe('canonicalUrl', () => {
  it.each([
    ['/runs', '/api/v1/runs'],
    ['/api/runs', '/api/v1/runs'],
    ['/api/v1/runs', '/api/v1/runs'],
    ['/api/v1/api/v1/runs', '/api/v1/runs'],
    ['//api//v1/runs/', '/api/v1/runs/'],
    ['/api/v1', '/api/v1'],
    ['/', '/api/v1/'],
    ['/api-key', '/api/v1/api-key'],
    ['/api/api-key/current', '/api/v1/api-key/current'],
    ['/apiary', '/api/v1/apiary'],
    ['/otel/v1/traces', '/api/v1/otel/v1/traces'],
    ['/sessions?next=/api/v1/x&name=', '/api/v1/sessions?next=/api/v1/x&name='],
    ['/docs/static/index.css', '/docs/static/index.css'],
    ['/metrics?x=1', '/metrics?x=1'],
    ['/api/v1/metrics', '/api/v1/metrics'],
    ['/v2/runs/query', '/api/v2/runs/query'],
    ['/api/v2/runs/1?x=/v2', '/api/v2/runs/1?x=/v2'],
    ['/api/v1/v2/runs/query/', '/api/v2/runs/query/'],
    ['/v1/platform/evaluators', '/api/v1/platform/evaluators'],
    ['/platform/evaluators', '/api/v1/platform/evaluators'],
    ['/api/v1/platform/evaluators/', '/api/v1/platform/evaluators/'],
    ['/api/v1/v1/platform/evaluators', '/api/v1/platform/evaluators'],
    ['/v1/platforms', '/api/v1/v1/platforms'],
    ['/v2runs', '/api/v1/v2runs'],
    ['/public/1/runsshare_token=1&id=2', '/api/v1/public/1/runs?share_token=1&id=2'],
    ['/public/1/runs?share_token=1', '/api/v1/public/1/runs?share_token=1'],
    ['*', '*'],
  ])('maps %s to %s', (url, canonical) => {
    expect(toCanonicalUrl(url, root)).toBe(canonical);
  });
});
