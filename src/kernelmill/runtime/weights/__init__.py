"""Long-lived arguments: bound, packed, and watched for writes."""
