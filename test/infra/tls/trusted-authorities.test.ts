import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { readTrustedAuthorities } from '../../../infra/tls/trusted-authorities.ts';
import { folderForSuite } from '../../folders.ts';

const folder = folderForSuite();

describe('trusted authorities', () => {
  it('are those of the client if no file is set', () => {
    expect(readTrustedAuthorities({ tlsCaFile: undefined })).toBeUndefined();
  });

  it('are those of the file and those of Node', () => {
    const tlsCaFile = join(folder, 'two.pem');
    writeFileSync(tlsCaFile, `a comment\n${rootCertificates[0]}\n${rootCertificates[1]}\n`);
    expect(readTrustedAuthorities({ tlsCaFile })).toHaveLength(rootCertificates.length + 2);
    // All clients of a process trust the same certificates, so the file is read once.
    writeFileSync(tlsCaFile, `${rootCertificates[0]}\n`);
    expect(readTrustedAuthorities({ tlsCaFile })).toHaveLength(rootCertificates.length + 2);
  });

  it.each([
    ['missing.pem', undefined, /the file does not exist/],
    ['empty.pem', '', /contains no PEM certificate/],
    ['key.pem', '-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----\n', /contains no PEM certificate/],
    ['bad.pem', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n', /cannot be used: .+\./],
  ])('%s is named with what is wrong', (name, text, reason) => {
    const tlsCaFile = join(folder, name);
    if (text !== undefined) writeFileSync(tlsCaFile, text);
    expect(() => readTrustedAuthorities({ tlsCaFile })).toThrow(
      expect.objectContaining({ code: 'TLS_FILE_UNUSABLE', message: expect.stringMatching(reason) }),
    );
  });
});
