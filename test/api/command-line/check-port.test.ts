import { describe, expect, it } from 'vitest';
import { agentServerAddress, apiAddress, checkPort, listenError } from '../../../api/command-line/check-port.ts';

describe('an address on which nothing can listen', () => {
  it.each([
    ['no.such.host.invalid', 'no such host|look-up'],
    ['300.1.1.1', 'no such host|look-up'],
    ['192.0.2.1', 'no such address'],
  ])('%s is named with its variable', async (host, reason) => {
    await expect(checkPort(apiAddress({ host, port: 0 }))).rejects.toMatchObject({
      code: 'HOST_UNUSABLE',
      message: expect.stringMatching(new RegExp(`RUNLAKE_HOST=${host} \\(.*(?:${reason})`)),
    });
  });

  it('a port for which rights are missing is named too', () => {
    const error = listenError(
      Object.assign(new Error('listen'), { code: 'EACCES' }),
      agentServerAddress({ agentsHost: '127.0.0.1', agentsPort: 80 }),
    );
    expect(error.message).toMatch(
      /port 80 of RUNLAKE_AGENTS_HOST=127.0.0.1 \(this user has no permission to bind the port\)/,
    );
  });

  it('one that is free passes', async () => {
    await expect(checkPort(apiAddress({ host: '127.0.0.1', port: 0 }))).resolves.toBeUndefined();
  });
});
