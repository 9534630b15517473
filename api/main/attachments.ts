import { Type } from 'typebox';
import { getAttachment as readAttachment } from '../../pipelines/attachments/read-attachment.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';

/** Serves `GET /public/attachments/{token}`, the target of the links in `s3_urls`. */
export const getAttachment = defineOperation({
  operationId: 'getAttachment',
  method: 'GET',
  path: '/public/attachments/:token',
  summary: 'Get an attachment of a run',
  description: 'Needs no key: the token is part of the links in `s3_urls` of a run and expires after an hour.',
  access: { public: true, tenantScope: 'none' },
  errors: ['NOT_FOUND', 'LINK_EXPIRED', ...clickhouseErrors],
  schema: {
    params: Type.Object({ token: Type.String({ maxLength: 8_192 }) }),
    response: {
      200: Type.String({ contentEncoding: 'binary', description: 'The bytes of the attachment, as they were sent.' }),
    },
    produces: 'application/octet-stream',
    alsoProduces: {
      '*/*': Type.String({ contentEncoding: 'binary', description: 'With the media type that was sent.' }),
    },
  },
  handler: async ({ params, services, request: { disconnected } }) => {
    const { clickhouse, database, attachmentSigner: signer } = services;
    const { name, mimeType, content } = await readAttachment(
      { clickhouse, database, signer, disconnected },
      params.token,
    );
    return new RawResponse({
      body: content,
      headers: {
        'content-type': mimeType,
        // The sender chooses type and content, so browsers must download the file and never execute it on this origin.
        'content-disposition': `attachment; filename*=UTF-8''${encodeExtendedValue(name)}`,
        'content-security-policy': "default-src 'none'; sandbox",
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        'cache-control': 'private, no-store',
      },
    });
  },
});

/** Encodes a file name as required by RFC 8187, which allows fewer unescaped characters than URLs. */
function encodeExtendedValue(text: string): string {
  return encodeURIComponent(text).replace(/['()*]/g, (character) => `%${character.charCodeAt(0).toString(16)}`);
}
