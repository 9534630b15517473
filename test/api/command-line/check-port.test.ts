import { describe, expect, it } from 'vitest';
import {
  checkPort,
  createListenError,
  getAgentServerAddress,
  getApiAddress,
} from '../../../api/command-line/check-port.ts';

describe('checkPort and listenError', () => {
  it.each([
    ['no.such.host.invalid', 'no such host|look-up'],
    ['300.1.1.1', 'no such host|look-up'],
    ['192.0.2.1', 'no such address'],
  ])('rejects host %s and names its variable', async (host, reason) => {
    await expect(checkPort(getApiAddress({ host, port: 0 }))).rejects.toMatchObject({
      code: 'HOST_UNUSABLE',
      message: expect.stringMatching(new RegExp(`RUNLAKE_HOST=${host} \\(.*(?:${reason})`)),
    });
  });

  it('name the address if the user has no permission to bind the port', () => {
    const error = createListenError(
      Object.assign(new Error('listen'), { code: 'EACCES' }),
      getAgentServerAddress({ agentsHost: '127.0.0.1', agentsPort: 80 }),
    );
    expect(error.message).toMatch(
      /port 80 of RUNLAKE_AGENTS_HOST=127.0.0.1 \(this user has no permission to bind the port\)/,
    );
  });

  it('accepts a free port', async () => {
    await expect(checkPort(getApiAddress({ host: '127.0.0.1', port: 0 }))).resolves.toBeUndefined();
  });
});
