import { describe, expect, it } from 'vitest';
import { exportFolder, partKey } from '../../../../pipelines/exports/files/part-key.ts';

const location = {
  exportId: 'e',
  tenantId: 't',
  projectId: 's',
  runId: '0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24',
  dayMicros: Date.UTC(2026, 2, 5) * 1_000,
  part: 1,
};

describe('the key of a part', () => {
  it.each([
    ['v1', 'runs'],
    ['v2_beta', 'resource=runs'],
  ] as const)('%s', (version, resource) => {
    expect(partKey({ ...location, version })).toBe(
      `export_id=e/tenant_id=t/session_id=s/${resource}/year=2026/month=03/day=05/0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24-000001.parquet`,
    );
    expect(partKey({ ...location, version }).startsWith(`${exportFolder(location)}/`)).toBe(true);
  });

  it.each([
    ['the first moment of a year', Date.UTC(2024, 0, 1) * 1_000, 'year=2024/month=01/day=01'],
    ['the last moment of a leap day', Date.UTC(2024, 2, 1) * 1_000 - 1, 'year=2024/month=02/day=29'],
    ['the last moment of a year', Date.UTC(2026, 0, 1) * 1_000 - 1, 'year=2025/month=12/day=31'],
  ])('%s', (_, dayMicros, day) => {
    expect(partKey({ ...location, version: 'v1', dayMicros })).toContain(`/${day}/`);
  });

  it('sorts the parts of a run by number', () => {
    const keys = [1, 2, 9, 10, 99, 100, 99_999, 999_999].map((part) => partKey({ ...location, version: 'v1', part }));
    expect([...keys].sort()).toEqual(keys);
  });
});
