import { describe, expect, it } from 'vitest';
import { computeEffectivePermissions, permissions } from '../../../pipelines/tenants/permissions.ts';

describe('effectivePermissions', () => {
  const names = permissions.map(({ name }) => name);
  const reading = permissions.filter(({ reads }) => reads).map(({ name }) => name);

  it.each([
    ['everything', ['*'], false, true, names],
    ['all permissions, read-only', ['*'], true, true, reading],
    ['some permissions, some of them unknown', ['runs:write', 'moon:land'], false, true, ['runs:write']],
    ['write permissions, read-only', ['runs:write'], true, true, []],
    ['nothing', [], false, true, []],
  ])('%s', (_, stored, readOnly, wide, granted) => {
    expect([...computeEffectivePermissions(stored, readOnly, wide)]).toEqual(granted);
  });

  it('does not grant organisation changes to keys of single workspaces', () => {
    const granted = computeEffectivePermissions(['*'], false, false);
    expect(granted).toContain('organization:read');
    expect(granted).toContain('runs:write');
    expect(granted).not.toContain('organization:manage');
    expect(granted).not.toContain('workspaces:manage');
  });

  it('contains the names that clients depend on', () => {
    expect(names).toEqual(expect.arrayContaining(['organization:read', 'runs:read', 'runs:write']));
  });
});
