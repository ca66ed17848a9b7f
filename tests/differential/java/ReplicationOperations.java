package org.apache.kafka.controller;

import static org.apache.kafka.controller.BrokerOperations.answered;

import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestDataJsonConverter;
import org.apache.kafka.common.message.AlterPartitionReassignmentsResponseData;
import org.apache.kafka.common.message.AlterPartitionReassignmentsResponseDataJsonConverter;
import org.apache.kafka.common.message.AlterPartitionRequestDataJsonConverter;
import org.apache.kafka.common.message.AlterPartitionResponseData;
import org.apache.kafka.common.message.AssignReplicasToDirsRequestDataJsonConverter;
import org.apache.kafka.common.message.AssignReplicasToDirsResponseData;
import org.apache.kafka.common.message.AssignReplicasToDirsResponseDataJsonConverter;
import org.apache.kafka.common.message.ElectLeadersRequestDataJsonConverter;
import org.apache.kafka.common.message.ElectLeadersResponseData;
import org.apache.kafka.common.message.ElectLeadersResponseDataJsonConverter;
import org.apache.kafka.common.message.ListPartitionReassignmentsResponseDataJsonConverter;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Utils;

/** ISRs, elections, reassignments and replica directories. */
final class ReplicationOperations {
    private ReplicationOperations() { }

    static void addTo(Map<String, Operation> operations) {
        operations.put("alter_partitions", (world, arguments) -> {
            ControllerResult<AlterPartitionResponseData> result = world.replication.alterPartition(
                world.context((short) 3),
                AlterPartitionRequestDataJsonConverter.read(arguments.get("request"), (short) 3));
            byte[] body = Utils.readBytes(
                MessageUtil.toByteBufferAccessor(result.response(), (short) 3).buffer());
            return answered(result, TextNode.valueOf(HexFormat.of().formatHex(body)));
        });
        operations.put("elect_leaders", (world, arguments) -> {
            ControllerResult<ElectLeadersResponseData> result = world.replication.electLeaders(
                ElectLeadersRequestDataJsonConverter.read(arguments.get("request"), (short) 2));
            return answered(result,
                ElectLeadersResponseDataJsonConverter.write(result.response(), (short) 2));
        });
        operations.put("balance_leaders", (world, arguments) -> {
            ControllerResult<Boolean> result = world.replication.maybeBalancePartitionLeaders();
            return answered(result, BooleanNode.valueOf(result.response()));
        });
        operations.put("elect_unclean_leaders", (world, arguments) -> {
            ControllerResult<Boolean> result = world.replication.maybeElectUncleanLeaders();
            return answered(result, BooleanNode.valueOf(result.response()));
        });
        operations.put("alter_reassignments", (world, arguments) -> {
            ControllerResult<AlterPartitionReassignmentsResponseData> result =
                world.replication.alterPartitionReassignments(
                    AlterPartitionReassignmentsRequestDataJsonConverter.read(
                        arguments.get("request"), (short) 1));
            return answered(result,
                AlterPartitionReassignmentsResponseDataJsonConverter.write(result.response(), (short) 1));
        });
        operations.put("list_reassignments", (world, arguments) -> ControllerResult.of(
            java.util.List.of(), ListPartitionReassignmentsResponseDataJsonConverter.write(
                world.replication.listPartitionReassignments(null, Long.MAX_VALUE), (short) 0)));
        operations.put("assign_directories", (world, arguments) -> {
            ControllerResult<AssignReplicasToDirsResponseData> result =
                world.replication.handleAssignReplicasToDirs(
                    AssignReplicasToDirsRequestDataJsonConverter.read(
                        arguments.get("request"), (short) 0));
            return answered(result,
                AssignReplicasToDirsResponseDataJsonConverter.write(result.response(), (short) 0));
        });
    }
}
