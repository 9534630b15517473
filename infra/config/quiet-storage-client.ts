/**
 * Suppresses the S3 client's warning that its future releases need a newer Node. The version of the client is pinned,
 * so operators need not act on the warning. It consists of several lines of plain text on stderr, which breaks the log
 * format (one JSON line per event).
 */
export function silenceStorageClient(): void {
  process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED = 'true';
}
