/**
 * Silences the S3 client's warning that its future releases need a newer Node. The client is pinned, so operators need
 * not act on it, and the warning is several lines of plain text on stderr, which breaks the format of the log (one JSON
 * line per event).
 */
export function quietStorageClient(environment: NodeJS.ProcessEnv = process.env): void {
  environment.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED = 'true';
}
